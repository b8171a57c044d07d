"""Three real templates, none with `{% generation %}`, against what each is known to write of an answer."""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from datagen.template.chat import ChatTemplate, Tokens
from tests.datagen.template import real
from tests.datagen.template.conversations import Messages, conversations

EMPTY_THINKING = "<think>\n\n</think>\n\n"


def smollm2_answers(messages: Messages) -> list[str]:
    return [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]


def llama3_1_answers(messages: Messages) -> list[str]:
    return [m["content"].strip() + "<|eot_id|>" for m in messages if m["role"] == "assistant"]


def qwen3_answers(messages: Messages) -> list[str]:
    """Answers without their thinking, which the last one keeps."""
    last = max(at for at, message in enumerate(messages) if message["role"] == "assistant")
    answers = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        content, thinking = message["content"], ""
        if "</think>" in content:
            thinking = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
        if at == last:
            content = f"<think>\n{thinking.strip(chr(10))}\n</think>\n\n" + content.lstrip("\n")
        answers.append(content + "<|im_end|>")
    return answers


EXPECTED: dict[str, Callable[[Messages], list[str]]] = {
    "smollm2": smollm2_answers,
    "qwen3": qwen3_answers,
    "llama3_1": llama3_1_answers,
}


def encode(tokenizer: Any, messages: Messages, max_tokens: int | None = None) -> tuple[list[str], Tokens]:
    template = ChatTemplate(tokenizer)
    rendered = template.render(messages)
    (tokens,) = template.encode([rendered], max_tokens)
    assert isinstance(tokens, Tokens)
    return [rendered.text[start:end] for start, end in rendered.spans], tokens


def runs(ids: list[int], mask: NDArray[np.uint8]) -> list[list[int]]:
    """Return the ids of each stretch of trained tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    return [ids[start:end] for start, end in edges.reshape(-1, 2)]


def decoded(tokenizer: Any, ids: list[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def chat_ids(tokenizer: Any, messages: Messages) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(messages, tokenize=True)["input_ids"]
    return ids


@pytest.mark.parametrize("name", real.NAMES)
def test_a_random_conversation_is_masked_where_the_target_speaks(name: str) -> None:
    tokenizer = real.tokenizer(name)

    @settings(max_examples=150, deadline=None)
    @given(conversations())
    def holds(messages: Messages) -> None:
        expected = EXPECTED[name](messages)
        spans, tokens = encode(tokenizer, messages)
        assert spans == expected
        assert tokens.input_ids == chat_ids(tokenizer, messages)
        trained = [decoded(tokenizer, run) for run in runs(tokens.input_ids, tokens.loss_mask)]
        assert len(trained) == len(expected)
        for whole, part in zip(expected, trained, strict=True):
            # Qwen3's tokenizer composes letters and accents, SmolLM2's drops bytes that it has no token for.
            whole = decoded(tokenizer, tokenizer.encode(whole, add_special_tokens=False))
            assert whole.endswith(part)
            # White space that one token takes together with the turn's opening was no choice of the target's.
            assert not whole.removesuffix(part).strip()

    holds()


@pytest.mark.parametrize("name", real.NAMES)
def test_what_is_trained_reads_as_the_answers(name: str) -> None:
    tokenizer = real.tokenizer(name)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Two and two?"},
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "And one?"},
        {"role": "assistant", "content": " Five, naïve 👍 "},
    ]
    _, tokens = encode(tokenizer, messages)
    trained = [i for i, m in zip(tokens.input_ids, tokens.loss_mask, strict=True) if m]
    assert (
        tokenizer.decode(trained)
        == {
            "smollm2": "Four.<|im_end|> Five, naïve 👍 <|im_end|>",
            "qwen3": "Four.<|im_end|>" + EMPTY_THINKING + " Five, naïve 👍 <|im_end|>",
            "llama3_1": "Four.<|eot_id|>Five, naïve 👍<|eot_id|>",
        }[name]
    )


def test_the_beginning_of_text_stands_once() -> None:
    tokenizer = real.tokenizer("llama3_1")
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    _, tokens = encode(tokenizer, messages)
    assert tokens.input_ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("name", real.NAMES)
def test_a_cut_conversation_is_a_prefix_of_the_whole(name: str) -> None:
    """Texts are cut before they are tokenised where that changes nothing: here on real conversations."""
    tokenizer = real.tokenizer(name)
    template = ChatTemplate(tokenizer)
    roles = {"human": "user", "gpt": "assistant", "system": "system"}
    with open(real.sharegpt(), encoding="utf-8") as file:
        pieces = [json.loads(line)["conversations"] for line in islice(file, 60)]
    rendered = [
        template.render([{"role": roles[turn["from"]], "content": turn["value"]} for turn in turns])
        for turns in pieces
        if turns and turns[0]["from"] == "human"
    ]
    whole = template.encode(rendered)
    for most in (1, 63, 384):
        for full, cut in zip(whole, template.encode(rendered, most), strict=True):
            assert isinstance(full, Tokens)
            assert isinstance(cut, Tokens)
            assert cut.input_ids == full.input_ids[:most]
            assert np.array_equal(cut.loss_mask, full.loss_mask[:most])
            assert cut.cut == (len(full.input_ids) > most)


def test_tool_calls_belong_to_the_answer() -> None:
    tokenizer = real.tokenizer("qwen3")
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    messages: Messages = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "Four."},
    ]
    rendered = ChatTemplate(tokenizer).render(messages, [call])
    assert [rendered.text[start:end] for start, end in rendered.spans] == [
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>',
        EMPTY_THINKING + "Four.<|im_end|>",
    ]


def test_an_option_reaches_the_template() -> None:
    """Without thinking, Qwen3's generation prompt writes the empty block: it is not the target's own."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    rendered = ChatTemplate(real.tokenizer("qwen3"), {"enable_thinking": False}).render(messages)
    assert [rendered.text[start:end] for start, end in rendered.spans] == ["yo<|im_end|>"]
