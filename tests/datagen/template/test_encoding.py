"""Tokenizers without offsets, and tokenizer files that bring habits of their own."""

from typing import ClassVar

import numpy as np
import pytest
from transformers import ByT5Tokenizer

from datagen.template.chat import ChatTemplate, Rendered, Tokens
from datagen.template.encoding import Encoder
from datagen.template.errors import TemplateError, UnrenderableError
from datagen.template.tokenizer import load_tokenizer
from tests.datagen.template import real

SLOW_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TALK = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "é1"},
    {"role": "user", "content": "two?"},
    {"role": "assistant", "content": "2"},
]


def test_a_slow_tokenizer_is_masked_by_pieces() -> None:
    tokenizer = ByT5Tokenizer()
    tokenizer.chat_template = SLOW_TEMPLATE
    chat = ChatTemplate(tokenizer)
    (tokens,) = chat.encode([chat.render(TALK)])
    assert isinstance(tokens, Tokens)
    assert tokens.input_ids == tokenizer.apply_chat_template(TALK, tokenize=True)["input_ids"]
    trained = [i for i, m in zip(tokens.input_ids, tokens.loss_mask, strict=True) if m]
    assert tokenizer.decode(trained) == "é1</s>2</s>"
    (cut,) = chat.encode([chat.render(TALK)], 20)
    assert isinstance(cut, Tokens)
    assert cut.cut
    assert cut.input_ids == tokens.input_ids[:20]
    assert np.array_equal(cut.loss_mask, tokens.loss_mask[:20])


class Pairs:
    """A tokenizer that joins two letters into one token: what stands beside a text changes its ids."""

    is_fast = False
    added_tokens_decoder: ClassVar[dict[int, object]] = {}
    all_special_tokens: ClassVar[list[str]] = []

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [int.from_bytes(text[at : at + 2].encode("utf-8")) for at in range(0, len(text), 2)]


def test_a_slow_tokenizer_whose_token_crosses_an_edge_is_refused() -> None:
    (tokens,) = Encoder(Pairs()).encode([Rendered("abc", ((1, 3),))], None)
    assert isinstance(tokens, UnrenderableError)
    assert "reaches over the edge" in tokens.headline


def test_a_tokenizer_file_that_cuts_and_pads_does_neither() -> None:
    tokenizer = real.with_template(real.tokenizer("smollm2").chat_template)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=64)
    chat = ChatTemplate(tokenizer)
    rendered = chat.render(TALK)
    (tokens,) = chat.encode([rendered])
    assert isinstance(tokens, Tokens)
    assert tokenizer.decode(tokens.input_ids) == rendered.text


def test_a_missing_tokenizer_is_told() -> None:
    with pytest.raises(TemplateError, match="nowhere: cannot be loaded"):
        load_tokenizer("./nowhere")


def test_words_longer_than_thought_are_tokenised_to_the_end() -> None:
    tokenizer = real.tokenizer("smollm2")
    chat = ChatTemplate(tokenizer)
    words = " responsibility" * 20
    roles = ("user", "assistant")
    rendered = chat.render([{"role": roles[at % 2], "content": words} for at in range(20)])
    (whole,), (cut,) = chat.encode([rendered]), chat.encode([rendered], 100)
    assert isinstance(whole, Tokens)
    assert isinstance(cut, Tokens)
    assert cut.input_ids == whole.input_ids[:100]
    assert cut.cut
