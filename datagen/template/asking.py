"""What a target is given before each of its answers, by its chat template.

The conversation is rendered up to each answer with the generation prompt behind it, as a server does, a mark
in place of every answer before: what a template writes around an answer must not depend on what it says.
Before a later answer stands only what follows the answer before it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from datagen.template.skeleton import answer_turns, behind, ending, marked
from datagen.template.text import Message, TextRenderer, Tools


class Asked(NamedTuple):
    """Text before an answer: `ending` closes the answer before it, unless the target did; `text` follows."""

    ending: str
    text: str


def asked(
    renderer: TextRenderer,
    messages: Sequence[Message],
    tools: Tools | None,
    specials: "re.Pattern[str] | None",
) -> list[Asked]:
    """Return what is given before each answer of `messages`; what the answers say is not looked at.

    Raises `UnrenderableError` when the template refuses, or does not write an answer once.
    """
    turns = [
        marked(message, turn) if turn in set(answer_turns(messages)) else message
        for turn, message in enumerate(messages)
    ]
    given: list[Asked] = []
    before: int | None = None
    for turn in answer_turns(messages):
        text = renderer.text(turns[:turn], tools, prompt=True)
        if before is None:
            given.append(Asked("", text))
        else:
            after = behind(text, before)
            alone = behind(renderer.text(turns[: before + 1], tools), before)
            closed = ending(alone, after, specials)
            given.append(Asked(closed, after[len(closed) :]))
        before = turn
    return given


def last_ending(renderer: TextRenderer, specials: "re.Pattern[str] | None") -> str:
    """Return what the template writes to end an answer that nothing follows: its last token ends the turn.

    Raises `UnrenderableError` when the template refuses a question and an answer.
    """
    turns = [{"role": "user", "content": "?"}, marked({"role": "assistant", "content": ""}, 1)]
    alone = behind(renderer.text(turns, None), 1)
    return ending(alone, alone, specials)
