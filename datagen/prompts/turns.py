"""Which turns of a conversation a capture needs: those from the first question to the last answer.

Pieces of long conversations often open with an answer whose question is in another piece. A target never
answers without being asked, so such answers are dropped; the turns behind the last answer train nothing and
would only cost bytes. Both are counted.
"""

from collections.abc import Sequence

from datagen.prompts.conversation import ASSISTANT, Message
from datagen.prompts.errors import RefusedRecord
from datagen.prompts.stats import PromptStats

OPENING = ("system", "developer")


def questions(
    messages: Sequence[Message], system_prompt: str | None, stats: PromptStats
) -> tuple[Message, ...]:
    """Return the turns of a conversation that the target itself answers, its answers without content.

    Each answer is asked for in its place, answers in a row once, and one behind a last question. The result
    of a tool stands behind a call that the target may never make: the conversation ends at the answer before.

    Raises `RefusedRecord("no_answer")` when nothing is asked.
    """
    lead = next((at for at, turn in enumerate(messages) if turn["role"] not in OPENING), len(messages))
    opening, rest = list(messages[:lead]), messages[lead:]
    asked = next((at for at, turn in enumerate(rest) if turn["role"] == "user"), None)
    if asked is None:
        raise RefusedRecord("no_answer", "expected a user turn to be answered, got none")
    stats.trimmed_leading_answer += asked > 0
    if system_prompt is not None and not opening:
        opening = [{"role": "system", "content": system_prompt}]
    turns: list[Message] = []
    for turn in rest[asked:]:
        if turn["role"] == "tool":
            stats.trimmed_trailing_turns += 1
            break
        if turn["role"] != ASSISTANT:
            turns.append(turn)
        elif turns[-1]["role"] != ASSISTANT:
            turns.append({"role": ASSISTANT, "content": None})
    if turns[-1]["role"] != ASSISTANT:
        turns.append({"role": ASSISTANT, "content": None})
    return (*opening, *turns)


def trimmed(
    messages: Sequence[Message], system_prompt: str | None, stats: PromptStats
) -> tuple[Message, ...]:
    """Return the turns to render, the system prompt in front where there is none.

    Raises `RefusedRecord("no_answer")` when no answer follows a question.
    """
    lead = next((at for at, turn in enumerate(messages) if turn["role"] not in OPENING), len(messages))
    opening, rest = list(messages[:lead]), messages[lead:]
    asked = next((at for at, turn in enumerate(rest) if turn["role"] == "user"), len(rest))
    answered = max((at for at, turn in enumerate(rest) if turn["role"] == ASSISTANT), default=-1) + 1
    if answered <= asked:
        got = "no answer at all" if not answered else "answers only before the first user turn"
        raise RefusedRecord("no_answer", f"expected an answer after a user turn, got {got}")
    stats.trimmed_leading_answer += asked > 0
    stats.trimmed_trailing_turns += answered < len(rest)
    if system_prompt is not None and not opening:
        opening = [{"role": "system", "content": system_prompt}]
    return (*opening, *rest[asked:answered])
