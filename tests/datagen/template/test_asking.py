"""What a target is given before each answer, by real templates: the conversation that a server would send."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from datagen.prompts.asking import Asking, make_asks
from datagen.prompts.conversation import Message
from datagen.prompts.prompt import Prompt
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats
from datagen.template.chat import ChatTemplate, Tokens
from datagen.template.errors import UnrenderableError
from tests.datagen.template import real
from tests.datagen.template.conversations import Messages, conversations

ENDINGS = {"smollm2": "<|im_end|>", "qwen3": "<|im_end|>", "llama3_1": "<|eot_id|>"}


def appended(template: ChatTemplate, messages: Messages) -> tuple[list[int], list[int]]:
    """Return the ids and the mask of a conversation whose target says what the answers of `messages` say."""
    ids: list[int] = []
    mask: list[int] = []
    answers = [message["content"] for message in messages if message["role"] == "assistant"]
    for asked, answer in zip(template.asked(messages), answers, strict=True):
        given_ids = template.token_ids(asked.text)
        said = [*template.token_ids(answer), *template.ending_token_ids()]
        ids += given_ids + said
        mask += [0] * len(given_ids) + [1] * len(said)
    return ids, mask


@pytest.mark.parametrize("name", real.NAMES)
def test_the_token_that_ends_an_answer_is_the_templates(name: str) -> None:
    tokenizer = real.tokenizer(name)
    (token,) = ChatTemplate(tokenizer).ending_token_ids()
    assert tokenizer.decode([token]) == ENDINGS[name]


@pytest.mark.parametrize("name", real.NAMES)
def test_before_each_answer_stands_what_a_server_would_send(name: str) -> None:
    """The prompt of an answer is the conversation so far, with the generation prompt behind it."""
    tokenizer = real.tokenizer(name)
    template = ChatTemplate(tokenizer)
    messages: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "First."},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "Second."},
        {"role": "user", "content": "Three?"},
        {"role": "assistant", "content": None},
    ]
    asked = template.asked(messages)
    text = ""
    for number, at in enumerate((2, 4, 6)):
        text += asked[number].ending + asked[number].text
        expected = tokenizer.apply_chat_template(messages[:at], tokenize=False, add_generation_prompt=True)
        assert text == expected
        text += messages[at]["content"] or ""
    assert [one.ending for one in asked] == ["", ENDINGS[name], ENDINGS[name]]


@pytest.mark.parametrize("name", ["smollm2", "llama3_1"])
def test_appended_answers_give_the_ids_and_the_mask_of_the_rendered_conversation(name: str) -> None:
    """Where the answers are trimmed and no token reaches over an edge, appending is rendering."""
    template = ChatTemplate(real.tokenizer(name))

    @settings(max_examples=60, deadline=None)
    @given(conversations())
    def check(messages: Messages) -> None:
        messages = [{**message, "content": message["content"].strip() + "."} for message in messages]
        try:
            rendered = template.render(messages)
        except UnrenderableError:
            return
        (tokens,) = template.encode([rendered])
        assert isinstance(tokens, Tokens)
        ids, mask = appended(template, messages)
        assert tokens.input_ids[: len(ids)] == ids
        assert tokens.loss_mask[: len(ids)].tolist() == mask

    check()


def test_a_template_that_hides_earlier_thinking_gives_the_ids_that_the_target_was_given() -> None:
    """Qwen3 takes thinking out of earlier answers: what is given behind it stays what the template writes."""
    template = ChatTemplate(real.tokenizer("qwen3"))
    messages: list[Message] = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFirst."},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": None},
    ]
    first, second = template.asked(messages)
    assert first.text == "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n"
    assert second == ("<|im_end|>", "\n<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n")


def test_a_generation_prompt_that_opens_the_answer_is_given_not_said() -> None:
    template = ChatTemplate(real.tokenizer("qwen3"), {"enable_thinking": False})
    (asked,) = template.asked([{"role": "user", "content": "One?"}, {"role": "assistant", "content": None}])
    assert asked.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_a_template_that_leaves_earlier_turns_out_cannot_be_asked_twice() -> None:
    short = "{% for m in messages[-1:] %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}"
    template = ChatTemplate(real.with_template(short))
    turns: list[Message] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]
    assert len(template.asked(turns)) == 1
    with pytest.raises(UnrenderableError, match="turn 1: expected the template to write it once"):
        template.asked(turns * 2)


def test_a_template_without_special_tokens_ends_no_answer() -> None:
    plain = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    assert ChatTemplate(real.with_template(plain)).ending_token_ids() == ()


def test_real_conversations_are_asked_turn_by_turn() -> None:
    """Of ShareGPT, the first 200: given and expected tokens by the asks, all within the sample."""
    asking = Asking({"mode": "generate"}, n=2, expected_tokens=50, most_tokens=100)
    stats = PromptStats("run")
    config = PromptSettings(path=str(real.sharegpt()), max_tokens=400, limit=200)
    items: list[Any] = list(make_asks(config, ChatTemplate(real.tokenizer("smollm2")), 49152, stats, asking))
    prompts = [item for item in items if isinstance(item, Prompt)]
    assert stats.read == 200 == stats.kept + stats.duplicates + stats.n_quarantined
    assert len(prompts) == 2 * stats.kept > 300
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    assert any(len(prompt.ask.following) > 1 for prompt in prompts if prompt.ask)
    for prompt in prompts:
        assert prompt.ask is not None
        assert not np.any(prompt.loss_mask)
        assert prompt.n_tokens < prompt.n_planned <= prompt.n_most <= 400
