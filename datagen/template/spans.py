"""Where the answers stand in a rendered conversation, proven by rendering, never guessed.

1. The contents, as they are or trimmed, put into the skeleton of the turns must give the rendered text.
2. Where a template rewrites contents (Qwen3 takes the thinking out of earlier answers), each answer in turn
   is replaced by a mark: what stands around the mark must stand around the answer.
3. Else the conversation is unrenderable.
"""

import re
from collections.abc import Callable, Sequence
from itertools import product

from datagen.template.errors import UnrenderableError
from datagen.template.skeleton import ASSISTANT, Skeleton, answer_turns, learn, mark, marked
from datagen.template.text import Message, Span, TextRenderer, Tools

TRIMS: tuple[Callable[[str], str], ...] = (str, str.strip, str.rstrip, str.lstrip)
KEPT_SKELETONS = 4096


class AnswerFinder:
    """Finds answers; keeps the skeletons of role sequences, so that a conversation costs one rendering."""

    def __init__(self, renderer: TextRenderer, special_tokens: Sequence[str]) -> None:
        self._renderer = renderer
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self.specials = re.compile("|".join(map(re.escape, longest_first))) if special_tokens else None
        self._skeletons: dict[tuple[str, ...], Skeleton | UnrenderableError] = {}
        self._trims = list(product(TRIMS, TRIMS))

    def find(self, messages: Sequence[Message], tools: Tools | None) -> tuple[str, tuple[Span, ...]]:
        """Return the rendered text and a span an answer: its content as rendered and the token that ends it.

        Raises `UnrenderableError` when the template refuses, or the spans cannot be proven.
        """
        text = self._renderer.text(messages, tools)
        skeleton = self._skeleton(messages, tools)
        spans = self._by_skeleton(messages, skeleton, text)
        if spans is None:
            spans = tuple(
                self._by_substitution(messages, tools, skeleton, text, turn)
                for turn in answer_turns(messages)
            )
        return text, spans

    def _skeleton(self, messages: Sequence[Message], tools: Tools | None) -> Skeleton:
        if tools or not all(message.keys() == {"role", "content"} for message in messages):
            return learn(self._renderer, messages, tools, self.specials)
        roles = tuple(message["role"] for message in messages)
        known = self._skeletons.get(roles)
        if known is None:
            if len(self._skeletons) >= KEPT_SKELETONS:
                self._skeletons.clear()
            try:
                known = learn(self._renderer, messages, None, self.specials)
            except UnrenderableError as error:
                known = error
            self._skeletons[roles] = known
        if isinstance(known, UnrenderableError):
            raise UnrenderableError(known.headline)
        return known

    def _by_skeleton(
        self, messages: Sequence[Message], skeleton: Skeleton, text: str
    ) -> tuple[Span, ...] | None:
        pieces = skeleton.pieces
        for at, (answer_trim, other_trim) in enumerate(self._trims):
            contents = [
                (answer_trim if message["role"] == ASSISTANT else other_trim)(message["content"])
                for message in messages
            ]
            filled = (
                "".join(part for pair in zip(pieces, contents, strict=False) for part in pair) + pieces[-1]
            )
            if filled == text:
                # The same template trims the next conversation alike.
                self._trims.insert(0, self._trims.pop(at))
                return _spans(messages, skeleton, contents)
        return None

    def _by_substitution(
        self, messages: Sequence[Message], tools: Tools | None, skeleton: Skeleton, text: str, turn: int
    ) -> Span:
        replaced = [*messages[:turn], marked(messages[turn], turn), *messages[turn + 1 :]]
        before, found, behind = self._renderer.text(replaced, tools).partition(mark(turn))
        own, ending = skeleton.own_openings[turn], skeleton.endings[turn]
        if (
            not found
            or mark(turn) in behind
            or not before.endswith(skeleton.pieces[turn])
            or not behind.startswith(ending)
        ):
            raise UnrenderableError(f"turn {turn}: the template writes other turns differently around it")
        start, end = len(before) - len(own), len(text) - len(behind)
        if start > end or not text.startswith(before[:start]) or not text.endswith(behind):
            raise UnrenderableError(
                f"turn {turn}: what the template writes around it depends on what it says"
            )
        return start, end + len(ending)


def _spans(messages: Sequence[Message], skeleton: Skeleton, contents: Sequence[str]) -> tuple[Span, ...]:
    spans = []
    at = 0
    for turn, (piece, content) in enumerate(zip(skeleton.pieces, contents, strict=False)):
        at += len(piece)
        end = at + len(content)
        if messages[turn]["role"] == ASSISTANT:
            spans.append((at - len(skeleton.own_openings[turn]), end + len(skeleton.endings[turn])))
        at = end
    return tuple(spans)
