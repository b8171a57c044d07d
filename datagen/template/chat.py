"""A target's chat template: turns in, token ids and the loss mask out."""

from collections.abc import Mapping, Sequence
from typing import Any

from datagen.template.encoding import Encoder, Rendered, Tokens
from datagen.template.errors import UnrenderableError
from datagen.template.skeleton import answer_turns
from datagen.template.spans import AnswerFinder
from datagen.template.text import Message, Span, TextRenderer, Tools

__all__ = ["ChatTemplate", "Rendered", "Tokens"]


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


def _check(text: str, spans: Sequence[Span], messages: Sequence[Message]) -> None:
    """Raise `UnrenderableError` unless the text is Unicode and the spans stand in it one after another."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnrenderableError(f"expected text, got half a surrogate pair: {error.reason}") from error
    if not spans and answer_turns(messages):
        raise UnrenderableError("expected a span an answer, got none from the template's generation blocks")
    edges = [edge for span in spans for edge in span]
    if edges != sorted(edges) or (edges and (edges[0] < 0 or edges[-1] > len(text))):
        raise UnrenderableError(f"expected answers one after another, got {list(spans)}")
