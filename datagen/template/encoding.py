"""Text to token ids, and spans of characters to a loss mask.

The whole conversation is tokenised at once and no special token is added: the template has written them. A
token is trained when it lies within an answer as a whole; one that reaches into the text before is none that
the target could have generated.

Long texts are cut before tokenising where that provably changes nothing: behind a special token, which every
tokenizer takes out of the text before it looks at the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datagen.template.errors import UnrenderableError
from datagen.template.text import Span

CHARS_A_TOKEN = 6
"""Characters first tokenised for a token that is wanted; where that gives too few, the whole text is."""


@dataclass(frozen=True)
class Rendered:
    """A conversation as text, and where in it the target's own words stand."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Tokens:
    """Token ids `[T]`, the loss mask `[T]`, and whether there were more than asked for."""

    input_ids: list[int]
    loss_mask: NDArray[np.uint8]
    cut: bool


class Encoder:
    """Tokenises with a fast tokenizer's own offsets, or piecewise with a slow one's."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.is_fast: bool = tokenizer.is_fast
        added = tokenizer.added_tokens_decoder.values()
        self.special_tokens = tuple(
            sorted({token.content for token in added if token.special} | set(tokenizer.all_special_tokens))
        )
        self._safe_cuts = tuple(
            token.content for token in added if token.special and not (token.normalized or token.single_word)
        )
        if self.is_fast:
            # A tokenizer.json may carry a length to cut or pad at.
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()

    def encode(
        self, rendered: Sequence[Rendered], max_tokens: int | None
    ) -> list[Tokens | UnrenderableError]:
        """Return the tokens of each text, at most `max_tokens` of them, or why there are none."""
        if not self.is_fast:
            return [self._piecewise(one, max_tokens) for one in rendered]
        heads = [self._head(one.text, max_tokens) for one in rendered]
        encodings = self._encodings(heads)
        again = [
            at
            for at, (one, head) in enumerate(zip(rendered, heads, strict=True))
            if len(head) < len(one.text) and max_tokens is not None and len(encodings[at]) <= max_tokens
        ]
        for at, encoding in zip(again, self._encodings([rendered[at].text for at in again]), strict=True):
            encodings[at] = encoding
        return [_cut(encoding, one, max_tokens) for encoding, one in zip(encodings, rendered, strict=True)]

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text, no special token added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens as they are written."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _encodings(self, texts: list[str]) -> list[Any]:
        return list(self._tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False))

    def _head(self, text: str, max_tokens: int | None) -> str:
        if max_tokens is None or len(text) <= max_tokens * CHARS_A_TOKEN:
            return text
        wanted = max_tokens * CHARS_A_TOKEN
        ends = ((at, len(token)) for token in self._safe_cuts if (at := text.find(token, wanted)) >= 0)
        at, length = min(ends, key=lambda found: (found[0], -found[1]), default=(len(text), 0))
        return text[: at + length]

    def _piecewise(self, one: Rendered, max_tokens: int | None) -> Tokens | UnrenderableError:
        """Tokenise without offsets: pieces between span edges, which must come to the tokens of the whole."""
        edges = sorted({0, len(one.text), *(edge for span in one.spans for edge in span)})
        whole = self._tokenizer.encode(one.text, add_special_tokens=False)
        ids: list[int] = []
        mask: list[int] = []
        for start, end in pairwise(edges):
            piece = self._tokenizer.encode(one.text[start:end], add_special_tokens=False)
            ids += piece
            mask += [int(any(first <= start and end <= last for first, last in one.spans))] * len(piece)
        if ids != whole:
            return UnrenderableError(
                "a token reaches over the edge of an answer, and the tokenizer has no offsets"
            )
        return Tokens(
            ids[:max_tokens],
            np.array(mask[:max_tokens], dtype=np.uint8),
            max_tokens is not None and len(ids) > max_tokens,
        )


def _cut(encoding: Any, one: Rendered, max_tokens: int | None) -> Tokens:
    cut = max_tokens is not None and len(encoding) > max_tokens
    if cut:
        encoding.truncate(max_tokens)
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    starts, ends = offsets[:, 0], offsets[:, 1]
    mask = np.zeros(len(offsets), dtype=np.uint8)
    for start, end in one.spans:
        mask[(starts >= start) & (ends <= end) & (ends > start)] = 1
    return Tokens(encoding.ids, mask, cut)
