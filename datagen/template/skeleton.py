"""What a chat template writes around the turns, learnt by rendering marks in place of their contents.

For each answer: how its turn opens, what of that opening is the target's own (Qwen3 writes an empty
`<think>` block before a last answer), and the token that ends it. Nothing here knows a template's markers:
the opening is what the generation prompt adds behind the turn before, the ending is the first special token
that the template writes behind the answer when the conversation stops there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from datagen.template.errors import UnrenderableError
from datagen.template.text import Message, TextRenderer, Tools

ASSISTANT = "assistant"
MARK = "StrataMark7c1e9f{}x"
"""Stands for a turn's content; letters and digits only, so that no template trims or escapes it."""


@dataclass(frozen=True)
class Skeleton:
    """`pieces[k]` stands between the contents of turns k-1 and k; the last one behind the last turn.

    By the turn of an answer: `own_openings` is the end of `pieces[k]` that the target generates itself,
    `endings` the start of `pieces[k + 1]` that it generates to stop (empty where a template has none).
    """

    pieces: tuple[str, ...]
    own_openings: dict[int, str]
    endings: dict[int, str]


def mark(turn: int) -> str:
    """Return the mark that stands for the content of a turn."""
    return MARK.format(turn)


def answer_turns(messages: Sequence[Message]) -> list[int]:
    """Return the turns that are answers."""
    return [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]


def marked(message: Message, turn: int) -> Message:
    """Return a turn with a mark for content; of an answer nothing else is left, tool calls included."""
    if message["role"] == ASSISTANT:
        return {"role": ASSISTANT, "content": mark(turn)}
    return {**message, "content": mark(turn)}


def learn(
    renderer: TextRenderer,
    messages: Sequence[Message],
    tools: Tools | None,
    specials: "re.Pattern[str] | None",
) -> Skeleton:
    """Return the skeleton of turns like `messages`.

    Raises `UnrenderableError` when the template does not write every turn once and in order, or opens an
    answer otherwise than its generation prompt does.
    """
    turns = [marked(message, turn) for turn, message in enumerate(messages)]
    pieces = _pieces(renderer.text(turns, tools), len(turns))
    own_openings: dict[int, str] = {}
    endings: dict[int, str] = {}
    for turn in answer_turns(turns):
        if turn == 0:
            raise UnrenderableError("turn 0 is an answer: expected a turn before it, got none")
        own_openings[turn] = _own_opening(renderer, turns[:turn], tools, pieces[turn])
        alone = (
            pieces[-1] if turn == len(turns) - 1 else behind(renderer.text(turns[: turn + 1], tools), turn)
        )
        endings[turn] = ending(alone, pieces[turn + 1], specials)
    return Skeleton(pieces, own_openings, endings)


def _pieces(text: str, n_turns: int) -> tuple[str, ...]:
    pieces = []
    for turn in range(n_turns):
        before, found, text = text.partition(mark(turn))
        if not found or mark(turn) in text:
            raise UnrenderableError(f"turn {turn}: expected the template to write it once and in order")
        pieces.append(before)
    return (*pieces, text)


def behind(text: str, turn: int) -> str:
    """Return what stands behind a turn's mark.

    Raises `UnrenderableError` when the template does not write the turn once.
    """
    before, found, after = text.rpartition(mark(turn))
    if not found or mark(turn) in before:
        raise UnrenderableError(f"turn {turn}: expected the template to write it once")
    return after


def _own_opening(renderer: TextRenderer, before: Sequence[Message], tools: Tools | None, piece: str) -> str:
    """Return the end of `piece`, which opens an answer, that stands behind the generation prompt."""
    turn = len(before)
    asked = behind(renderer.text(before, tools, prompt=True), turn - 1)
    if asked.startswith(piece):
        return ""
    if not piece.startswith(asked):
        raise UnrenderableError(
            f"turn {turn}: expected the answer to open as the generation prompt does: {asked!r}, "
            f"got {piece!r}"
        )
    own = piece[len(asked) :]
    has_prompt = asked != behind(renderer.text(before, tools), turn - 1)
    # A template without a generation prompt writes the answer's header all the same: no word of the target's.
    return own if has_prompt or not own.strip() else ""


def ending(alone: str, following: str, specials: "re.Pattern[str] | None") -> str:
    """Return the start of `following` up to the special token that ends the answer.

    `alone` is what the template writes when the conversation stops here: it tells the answer's own end from
    the next turn's opening. The token may differ (some templates write another at the very end), its place
    not.
    """
    found = specials.search(alone) if specials else None
    if specials is None or found is None or alone[: found.start()] != following[: found.start()]:
        return ""
    token = specials.match(following, found.start())
    return following[: token.end()] if token else ""
