"""What each format's fields mean, and what is said of those that mean nothing."""

from typing import Any

import pytest

from datagen.prompts import PromptSettings
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.formats import conversation

Q = {"role": "user", "content": "q"}
A = {"role": "assistant", "content": "a"}


def understood(record: dict[str, Any], **settings: Any) -> Any:
    return conversation(record, "f:1", PromptSettings(path="f", **settings))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"messages": [Q, A]}, id="messages"),
        pytest.param(
            {"messages": [{"role": "User", "content": "q"}, A | {"weight": 1, "name": None}]}, id="case"
        ),
        pytest.param({"conversations": [Q, A]}, id="conversations with roles"),
        pytest.param(
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, id="sharegpt"
        ),
        pytest.param(
            {"conversations": [{"from": "user", "value": "q"}, {"from": "Bard", "value": "a"}]}, id="bard"
        ),
        pytest.param({"prompt": "q", "response": "a"}, id="prompt and response"),
        pytest.param({"prompt": [Q], "completion": [A]}, id="lists of messages"),
        pytest.param({"prompt": [Q, A], "messages": None}, id="a prompt that holds all"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, A]}, id="parts"
        ),
    ],
)
def test_a_question_and_an_answer(record: dict[str, Any]) -> None:
    assert understood(record).messages == (Q, A)


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        (
            {"text": "x", "id": 1},
            "unreadable_record",
            "expected messages, conversations, prompt, or input_ids",
        ),
        ({}, "unreadable_record", "got no fields"),
        ({"messages": "x"}, "unreadable_record", "messages: expected a list, got str"),
        ({"messages": []}, "empty", "expected at least one turn"),
        ({"conversations": []}, "empty", "expected at least one turn"),
        (
            {"messages": ["x"]},
            "unreadable_record",
            r"messages\[0\]: expected an object with role and content",
        ),
        (
            {"messages": [{"role": "bot", "content": ""}]},
            "unreadable_record",
            r"messages\[0\].role: expected one",
        ),
        ({"messages": [{"role": "user"}]}, "unreadable_record", r"messages\[0\].content: expected a string"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "unreadable_record",
            "text parts only, got a part of type 'image_url'",
        ),
        (
            {"conversations": [{"from": "x", "value": ""}]},
            "unreadable_record",
            r"\[0\].from: expected one of",
        ),
        (
            {"conversations": [{"from": "gpt"}]},
            "unreadable_record",
            r"\[0\].value: expected a string, got None",
        ),
        ({"conversations": ["x"]}, "unreadable_record", "an object with from and value"),
        ({"prompt": 3}, "unreadable_record", "prompt: expected a string or a list of messages, got int"),
        (
            {"input_ids": [1], "loss_mask": [1, 0]},
            "unreadable_record",
            "expected 1 values as input_ids, got 2",
        ),
        ({"input_ids": [1], "loss_mask": [2]}, "unreadable_record", "loss_mask: expected 0 or 1, got 2"),
        (
            {"input_ids": [1.5], "loss_mask": [1]},
            "unreadable_record",
            "input_ids: expected integers, got 1.5",
        ),
        ({"input_ids": [], "loss_mask": []}, "empty", "expected at least one token"),
    ],
)
def test_what_is_not_understood_is_told(record: dict[str, Any], reason: str, detail: str) -> None:
    with pytest.raises(RefusedRecord) as caught:
        understood(record)
    assert caught.value.reason == reason
    with pytest.raises(AssertionError, match=detail):
        raise AssertionError(caught.value.detail)


def test_a_format_that_is_asked_for_is_the_only_one_read() -> None:
    both = {"messages": [Q, A], "prompt": "other", "response": "a"}
    assert understood(both).messages == (Q, A)
    assert understood(both, format="prompt").messages[0]["content"] == "other"
    with pytest.raises(RefusedRecord, match="conversations: expected a list, got nothing"):
        understood(both, format="sharegpt")
    with pytest.raises(RefusedRecord, match="input_ids: expected a list, got nothing"):
        understood(both, format="tokens")


def test_token_ids_pass_as_they_are() -> None:
    found = understood({"input_ids": [7, 8, 9], "loss_mask": [False, True, True]})
    assert found.messages is None
    assert (found.tokens.input_ids, found.tokens.loss_mask) == ([7, 8, 9], [0, 1, 1])


def test_tool_calls_reach_the_template_with_their_arguments_as_objects() -> None:
    call = {"id": "1", "index": None, "function": {"name": "add", "arguments": '{"a": 2}'}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    found = understood({"messages": [Q, answer], "tools": '[{"name": "add"}]'})
    assert found.tools == ({"name": "add"},)
    assert found.messages[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": {"a": 2}}}],
    }


def piece(own: str, first: str = "q") -> dict[str, Any]:
    return {"id": own, "conversations": [{"from": "human", "value": first}, {"from": "gpt", "value": "a"}]}


def test_pieces_of_a_sharegpt_conversation_share_their_id() -> None:
    ids = {understood(piece(own, own)).conversation_id for own in ("abc_0", "abc_12", "abc")}
    assert ids == {"abc"}
    assert understood(piece("_0")).conversation_id == "_0"


def test_an_id_of_another_format_is_kept_whole() -> None:
    assert understood({"id": "abc_0", "messages": [Q, A]}).conversation_id == "abc_0"
    assert understood({"id": "x", "conversation_id": 7, "messages": [Q, A]}).conversation_id == "7"


def test_without_an_id_conversations_that_open_alike_share_one() -> None:
    short = understood({"messages": [Q, A]}).conversation_id
    assert short == understood({"prompt": "q", "response": "other"}).conversation_id
    assert short != understood({"prompt": "r", "response": "a"}).conversation_id
    one = understood({"input_ids": [1, 2, 3], "loss_mask": [0, 0, 1]}).conversation_id
    assert one == understood({"input_ids": [1, 2, 4, 5], "loss_mask": [0, 0, 1, 1]}).conversation_id


def test_a_named_id_field_must_be_there() -> None:
    assert (
        understood(piece("abc_0") | {"thread": "t_1"}, conversation_id_field="thread").conversation_id
        == "t_1"
    )
    with pytest.raises(RefusedRecord, match="thread: expected a conversation id"):
        understood(piece("abc_0"), conversation_id_field="thread")
