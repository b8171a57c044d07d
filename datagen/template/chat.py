"""A target's chat template: turns in, token ids and the loss mask out."""

from collections.abc import Mapping, Sequence
from typing import Any

from datagen.template.asking import Asked, asked, last_ending
from datagen.template.encoding import Encoder, Rendered, Tokens
from datagen.template.errors import UnrenderableError
from datagen.template.skeleton import answer_turns
from datagen.template.spans import AnswerFinder
from datagen.template.text import Message, Span, TextRenderer, Tools

__all__ = ["Asked", "ChatTemplate", "Rendered", "Tokens"]


class ChatTemplate:
    """Renders and tokenises conversations as a target's tokenizer does, and finds what the target generates.

    `options` are variables that the template reads, as Qwen3's `enable_thinking`.

    Raises `TemplateError` when the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None) -> None:
        self._renderer = TextRenderer(tokenizer, options or {})
        self._encoder = Encoder(tokenizer)
        self._finder = AnswerFinder(self._renderer, self._encoder.special_tokens)

    def render(self, messages: Sequence[Message], tools: Tools | None = None) -> Rendered:
        """Return the text of a conversation and a span an answer.

        An answer's span opens where the generation prompt ends and closes behind the token that ends the
        turn; by `{% generation %}` where the template has it.

        Raises `UnrenderableError` when the template refuses, or the spans cannot be proven.
        """
        if self._renderer.marks_answers:
            text, spans = self._renderer.marked_text(messages, tools)
        else:
            text, spans = self._finder.find(messages, tools)
        _check(text, spans, messages)
        return Rendered(text, spans)

    def encode(
        self, rendered: Sequence[Rendered], max_tokens: int | None = None
    ) -> list[Tokens | UnrenderableError]:
        """Return the token ids and loss mask of each, at most `max_tokens`, or why there are none."""
        return self._encoder.encode(rendered, max_tokens)

    def asked(self, messages: Sequence[Message], tools: Tools | None = None) -> list[Asked]:
        """Return what the target is given before each answer; the contents of answers are not looked at.

        Raises `UnrenderableError` when the template refuses, or what it writes around an answer cannot be
        told from the answer.
        """
        given = asked(self._renderer, messages, tools, self._finder.specials)
        for one in given:
            _check_unicode(one.ending + one.text)
        return given

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text that the template wrote."""
        return self._encoder.token_ids(text)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens as they are written."""
        return self._encoder.text_of(token_ids)

    def ending_token_ids(self) -> tuple[int, ...]:
        """Return the token that ends an answer in this template; none where that is no special token."""
        try:
            text = last_ending(self._renderer, self._finder.specials)
        except UnrenderableError:
            return ()
        return tuple(self.token_ids(text)[-1:])


def _check(text: str, spans: Sequence[Span], messages: Sequence[Message]) -> None:
    """Raise `UnrenderableError` unless the text is Unicode and the spans stand in it one after another."""
    _check_unicode(text)
    if not spans and answer_turns(messages):
        raise UnrenderableError("expected a span an answer, got none from the template's generation blocks")
    edges = [edge for span in spans for edge in span]
    if edges != sorted(edges) or (edges and (edges[0] < 0 or edges[-1] > len(text))):
        raise UnrenderableError(f"expected answers one after another, got {list(spans)}")


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnrenderableError(f"expected text, got half a surrogate pair: {error.reason}") from error
