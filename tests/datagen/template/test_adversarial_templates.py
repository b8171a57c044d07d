"""Templates made to break the search for answers: each is masked rightly, or refused with the reason."""

import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.template.chat import ChatTemplate, Tokens
from datagen.template.errors import TemplateError, UnrenderableError
from tests.datagen.template import real
from tests.datagen.template.conversations import MARKERS, Messages, conversations

TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CHATML = "{% for m in messages %}" + TURN + "{% endfor %}" + OPEN

PRINTED = string.ascii_letters + string.punctuation + " \n"
"""transformers counts a token that reaches into the turn's opening as the answer's, and gives up where a
character has no token: neither is made of these, once white space is stripped in front."""

TALK: Messages = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "1"},
    {"role": "user", "content": "two?"},
    {"role": "assistant", "content": "2"},
]


def answers(template: str, messages: Messages = TALK) -> list[str]:
    rendered = ChatTemplate(real.with_template(template)).render(messages)
    return [rendered.text[start:end] for start, end in rendered.spans]


def test_generation_blocks_are_taken_at_their_word() -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
        "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    )
    assert answers(template) == ["1<|im_end|>", "2<|im_end|>"]
    tokenizer = real.with_template(template)

    @settings(max_examples=50, deadline=None)
    @given(conversations(st.one_of(st.sampled_from(MARKERS), st.text(PRINTED)).map(str.lstrip)))
    def as_transformers_does(messages: Messages) -> None:
        chat = ChatTemplate(tokenizer)
        (tokens,) = chat.encode([chat.render(messages)])
        expected = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        assert isinstance(tokens, Tokens)
        assert tokens.input_ids == expected["input_ids"]
        assert np.array_equal(tokens.loss_mask, expected["assistant_masks"])

    as_transformers_does()


def test_generation_blocks_that_hold_nothing_are_refused() -> None:
    empty = CHATML + "{% generation %}{% endgeneration %}"
    with pytest.raises(UnrenderableError, match="expected a span an answer"):
        answers(empty)


def test_an_earlier_answer_that_is_rewritten_is_refused() -> None:
    forgets = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and not loop.last %}(left out){% else %}{{ m.content }}{% endif %}"
        "<|im_end|>\n{% endfor %}" + OPEN
    )
    with pytest.raises(
        UnrenderableError, match="turn 1: expected the template to write it once and in order"
    ):
        answers(forgets)
    assert answers(forgets, TALK[:2]) == ["1<|im_end|>"]


def test_an_answer_written_twice_is_refused() -> None:
    with pytest.raises(UnrenderableError, match="turn 0: expected the template to write it once"):
        answers("{% for m in messages %}" + TURN + "{{ m.content }}{% endfor %}" + OPEN)


def test_turns_out_of_order_are_refused() -> None:
    with pytest.raises(UnrenderableError, match="in order"):
        answers("{% for m in messages | reverse %}" + TURN + "{% endfor %}" + OPEN)


def test_surroundings_that_depend_on_the_answer_are_refused() -> None:
    counts = "{% for m in messages %}<|im_start|>{{ m.role }} {{ (messages | last).content | length }}\n"
    with pytest.raises(
        UnrenderableError, match="turn 1: the template writes other turns differently around it"
    ):
        answers(counts + "{{ m.content }}<|im_end|>\n{% endfor %}", TALK)


@pytest.mark.parametrize("place", ["{length}{turns}", "{turns}{length}"], ids=["before", "behind"])
def test_a_text_elsewhere_that_depends_on_the_answer_is_refused(place: str) -> None:
    turns = "{% for m in messages %}" + TURN + "{% endfor %}"
    length = "{% if not add_generation_prompt %}{{ (messages | last).content | length }}{% endif %}"
    template = place.format(length=length, turns=turns)
    with pytest.raises(UnrenderableError, match="turn 3: what the template writes around it depends"):
        answers(template)


def test_an_answer_that_is_changed_is_found_by_what_stands_around_it() -> None:
    """The next question is quoted in the answer, opening and all: a search for it would stop there."""
    shouts = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content | replace('q', 'QQ') if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
        + OPEN
    )
    quoting = "q<|im_end|>\n<|im_start|>user\ntwo?<|im_end|>\n<|im_start|>assistant\nb"
    talk = [TALK[0], {"role": "assistant", "content": quoting}, *TALK[2:]]
    assert answers(shouts, talk) == [quoting.replace("q", "QQ") + "<|im_end|>", "2<|im_end|>"]


def test_a_system_turn_that_moves_to_the_last_question() -> None:
    """As older Mistral templates do: the render of the first turns is no prefix of the whole."""
    moves = (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content + '\n\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if m.role == 'user' %}[INST] "
        "{% if loop.index0 >= (rest | length) - 2 %}{{ s }}{% endif %}{{ m.content }}[/INST]"
        "{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    )
    with pytest.raises(UnrenderableError, match="in order"):
        answers(moves, [{"role": "system", "content": "s"}, *TALK])
    assert answers(moves) == [" 1<|im_end|>", " 2<|im_end|>"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            "{% for m in messages %}" + TURN + "{% endfor %}",
            ["1<|im_end|>", "2<|im_end|>"],
            id="no generation prompt",
        ),
        pytest.param(
            "{% for m in messages %}"
            + TURN
            + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
            ["1<|im_end|>", "2<|im_end|>"],
            id="a generation prompt that goes on to think",
        ),
        pytest.param(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{{ '<|endoftext|>' if loop.last and m.role == 'assistant' else '<|im_end|>' }}{% endfor %}"
            + OPEN,
            ["1<|im_end|>", "2<|endoftext|>"],
            id="another end at the very end",
        ),
        pytest.param(
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}",
            [" 1", " 2"],
            id="no special tokens at all",
        ),
        pytest.param(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}" + OPEN,
            ["1", "2"],
            id="an opening, but no end: the next turn's opening is no end",
        ),
        pytest.param(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{{ '<final>' if m.role == 'assistant' }}{{ m.content }}<|im_end|>{% endfor %}" + OPEN,
            ["<final>1<|im_end|>", "<final>2<|im_end|>"],
            id="a channel that the target opens itself",
        ),
    ],
)
def test_where_an_answer_opens_and_ends(template: str, expected: list[str]) -> None:
    assert answers(template) == expected


def test_a_template_that_opens_answers_unlike_its_prompt_is_refused() -> None:
    with pytest.raises(
        UnrenderableError, match="turn 1: expected the answer to open as the generation prompt"
    ):
        answers(
            "{% for m in messages %}" + TURN + "{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
        )


def test_what_a_template_raises_is_told() -> None:
    with pytest.raises(UnrenderableError, match="the chat template refuses it: TemplateError: alternate!"):
        answers("{{ raise_exception('alternate!') }}")
    with pytest.raises(UnrenderableError, match="the chat template refuses it"):
        answers("{{ messages[0].content + 1 }}")


def test_a_refusal_is_told_each_time() -> None:
    chat = ChatTemplate(real.with_template(CHATML))
    answer_first: Messages = [{"role": "assistant", "content": "1"}]
    for _ in range(2):
        with pytest.raises(UnrenderableError, match="turn 0 is an answer"):
            chat.render(answer_first)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(UnrenderableError, match="half a surrogate pair"):
        answers(CHATML, [TALK[0], {"role": "assistant", "content": "\ud800"}])


def test_a_tokenizer_without_a_template_is_refused() -> None:
    tokenizer: Any = real.with_template("")
    tokenizer.chat_template = None
    with pytest.raises(TemplateError, match="the tokenizer has no chat template"):
        ChatTemplate(tokenizer)
