"""From asks to prompts with answers, in the worker, turn by turn; then they are captured as any prompt is.

A sample's ids are the ids given and the ids that the target chose, one after another: nothing that it said is
tokenised again. Trained is what it chose, the token that ends its turn included. Each answer's text, length
and end go with the sample; where its conversation, rendered as a whole, comes to other ids (a tokenizer joins
what a model said in pieces, a template rewrites earlier answers), the model's ids stay, and the answer says
so by `renders_alike`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from datagen.engines.base import Answer, Answering
from datagen.engines.sampling import Sampling, seed_of
from datagen.errors import RunFailedError
from datagen.prompts.prompt import Ask, Given, Prompt
from datagen.prompts.settings import PromptSettings
from datagen.template.chat import ChatTemplate
from datagen.template.errors import UnrenderableError
from datagen.worker.write_behind import UnitProgress, quarantined
from schemas.problem import Problem
from schemas.record import canonical_json
from schemas.records import QuarantinedSample, QuarantineReason
from schemas.sample import sample_id

ASSISTANT = "assistant"
PROBE_TOKENS = 32


@dataclass(frozen=True)
class AnsweringOrder:
    """How the targets of a run answer."""

    sampling: Sampling
    seed: int
    batch: int
    quarantine_truncated: bool
    prompts: PromptSettings


@dataclass(frozen=True)
class Answered:
    """What came of asks: prompts to capture, samples refused, and asks left when it was told to stop."""

    prompts: tuple[Prompt, ...]
    quarantined: tuple[QuarantinedSample, ...]
    unfinished: tuple[Prompt, ...]


@dataclass
class Dialogue:
    """A conversation while it is answered: its ids so far, which of them the target chose, and its answers.

    `starts` are the places of the answers' first tokens.
    """

    prompt: Prompt
    ask: Ask
    ids: list[int]
    mask: list[int]
    answers: list[Answer] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, prompt: Prompt) -> "Dialogue":
        """Return the dialogue of an ask before its first answer; raises `ValueError` for another prompt."""
        if prompt.ask is None:
            raise ValueError(f"{prompt.source}: expected an ask, got a prompt that is answered")
        return cls(prompt, prompt.ask, prompt.input_ids.tolist(), [0] * len(prompt.input_ids))

    @property
    def finished(self) -> bool:
        """Whether every answer that was asked for is there."""
        return len(self.answers) > len(self.ask.following)

    @property
    def following(self) -> Given:
        """What is given behind the answers so far."""
        return self.ask.following[len(self.answers) - 1]

    def take(self, answer: Answer) -> None:
        """Add an answer."""
        self.starts.append(len(self.ids))
        self.answers.append(answer)
        self.ids += answer.token_ids
        self.mask += [1] * len(answer.token_ids)

    def ask_next(self, stop_token_ids: Sequence[int]) -> None:
        """Add what is given before the next answer; what ends the last one only where the target did not."""
        ended = self.ids[-1] in stop_token_ids
        given = self.following.ids.tolist() if ended else _joined(self.following)
        self.ids += given
        self.mask += [0] * len(given)

    def n_next(self, stop_token_ids: Sequence[int]) -> int:
        """Return how many tokens the next prompt has."""
        given = self.following
        ended = self.ids[-1] in stop_token_ids
        return len(self.ids) + len(given.ids) + (0 if ended else len(given.ending))


class Answerer:
    """Lets an engine's target answer; `template` is `None` where tokens have no text."""

    def __init__(
        self,
        engine: Answering,
        order: AnsweringOrder,
        template: ChatTemplate | None,
        run_id: str,
        progress: UnitProgress,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._order = order
        self._template = template
        self._run_id = run_id
        self._progress = progress
        self._stopping = stopping

    def answer(self, asks: Sequence[Prompt]) -> Answered:
        """Return the asks with their answers; raises `EngineError`, and `RunFailedError` for wrong counts."""
        made: dict[str, Prompt] = {}
        refused: list[QuarantinedSample] = []
        unfinished: list[Prompt] = []
        for batch in self._batches(asks):
            if self._stopping():
                unfinished += batch
                continue
            for dialogue in self._answered(batch):
                result = self._result(dialogue, made)
                if isinstance(result, Prompt):
                    made[result.sample_id] = result
                else:
                    refused.append(result)
            self._progress.answered += len(batch)
        return Answered(tuple(made.values()), tuple(refused), tuple(unfinished))

    def probe(self, asks: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Return the ids of one batch's first answers, short ones: enough to see how fast they come."""
        longest = next(self._batches(asks))
        sampling = self._order.sampling
        short = sampling.model_copy(update={"max_tokens": min(sampling.max_tokens, PROBE_TOKENS)})
        seeds = [seed_of(self._order.seed, ask.prompt_id, 0) for ask in longest]
        answers = self._engine.answer([ask.input_ids.tolist() for ask in longest], short, seeds)
        return [answer.token_ids for answer in answers]

    def _batches(self, asks: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Yield asks of like lengths together, the longest first: what does not fit in memory fails first."""
        ordered = sorted(asks, key=lambda ask: (-len(ask.input_ids), ask.prompt_id))
        for start in range(0, len(ordered), self._order.batch):
            yield ordered[start : start + self._order.batch]

    def _answered(self, batch: Sequence[Prompt]) -> list[Dialogue]:
        dialogues = [Dialogue.of(prompt) for prompt in batch]
        stops = self._order.sampling.stop_token_ids
        active = list(dialogues)
        while active:
            answers = self._engine.answer(
                [dialogue.ids for dialogue in active],
                self._order.sampling,
                [
                    seed_of(self._order.seed, dialogue.prompt.prompt_id, len(dialogue.answers))
                    for dialogue in active
                ],
            )
            _check(answers, active, self._order.sampling)
            for dialogue, answer in zip(active, answers, strict=True):
                dialogue.take(answer)
            active = [dialogue for dialogue in active if self._goes_on(dialogue)]
            for dialogue in active:
                dialogue.ask_next(stops)
        return dialogues

    def _goes_on(self, dialogue: Dialogue) -> bool:
        """Say whether another answer is asked for, and has room."""
        if dialogue.finished or (self._order.quarantine_truncated and _truncated(dialogue)):
            return False
        sampling = self._order.sampling
        return sampling.room(dialogue.n_next(sampling.stop_token_ids)) > 0

    def _result(self, dialogue: Dialogue, made: dict[str, Prompt]) -> Prompt | QuarantinedSample:
        prompt, settings = dialogue.prompt, self._order.prompts
        if self._order.quarantine_truncated and _truncated(dialogue):
            detail = f"answer {len(dialogue.answers)} was cut at {len(dialogue.answers[-1].token_ids)} tokens"
            return self._refuse(prompt, "truncated_answer", detail)
        if not dialogue.finished and settings.on_too_long == "quarantine":
            asked = 1 + len(dialogue.ask.following)
            detail = f"expected room for {asked} answers in {settings.max_tokens} tokens, got "
            return self._refuse(prompt, "too_long", f"{detail}{len(dialogue.answers)}")
        trained, least = sum(dialogue.mask), settings.min_trained_tokens
        if trained < least:
            detail = f"expected at least {least} trained tokens, got {trained}"
            return self._refuse(prompt, "too_few_trained_tokens", detail)
        identity = sample_id(dialogue.ids)
        if identity in made:
            detail = f"the answer of {made[identity].source} has the same token ids"
            refused = self._refuse(prompt, "duplicate_answer", detail)
            return refused.model_copy(update={"sample_id": identity})
        return replace(
            prompt,
            input_ids=np.array(dialogue.ids, np.int32),
            loss_mask=np.array(dialogue.mask, np.uint8),
            sample_id=identity,
            text=self._text(dialogue),
            ask=None,
        )

    def _refuse(self, prompt: Prompt, reason: QuarantineReason, detail: str) -> QuarantinedSample:
        self._progress.quarantined += 1
        return quarantined(prompt, reason, detail, self._run_id)

    def _text(self, dialogue: Dialogue) -> str:
        """Return the conversation as canonical JSON; each answer says how it ended and how long it is."""
        messages = _messages(dialogue.ask, len(dialogue.answers))
        turns = [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]
        for turn, answer in zip(turns, dialogue.answers, strict=True):
            if self._template is not None:
                messages[turn]["content"] = self._template.text_of(self._spoken(answer))
            messages[turn]["generated"] = {"finish": answer.finish, "n_tokens": len(answer.token_ids)}
        differing = self._differing(dialogue, messages)
        if differing is not None:
            messages[turns[differing]]["generated"]["renders_alike"] = False
        if not self._order.prompts.keep_text:
            messages = [{"role": ASSISTANT, "generated": messages[turn]["generated"]} for turn in turns]
        return canonical_json(messages).decode("ascii")

    def _spoken(self, answer: Answer) -> tuple[int, ...]:
        """Return an answer without the token that ends it: the template writes that one."""
        ended = answer.token_ids[-1] in self._order.sampling.stop_token_ids
        return answer.token_ids[:-1] if ended else answer.token_ids

    def _differing(self, dialogue: Dialogue, messages: Sequence[dict[str, Any]]) -> int | None:
        """Return the answer from which on the rendered conversation has other ids, `None` for no such."""
        if self._template is None or dialogue.ask.turns is None:
            return None
        plain = [{key: value for key, value in turn.items() if key != "generated"} for turn in messages]
        tools = None if dialogue.ask.tools is None else json.loads(dialogue.ask.tools)
        try:
            rendered = self._template.token_ids(self._template.render(plain, tools).text)
        except UnrenderableError:
            return 0
        at = _first_difference(dialogue.ids, rendered)
        if at is None:
            return None
        return max(sum(start <= at for start in dialogue.starts) - 1, 0)


def _messages(ask: Ask, n_answers: int) -> list[dict[str, Any]]:
    """Return the turns up to the last answer that was given; of tokens, the answers alone."""
    if ask.turns is None:
        return [{"role": ASSISTANT} for _ in range(n_answers)]
    messages: list[dict[str, Any]] = json.loads(ask.turns)
    turns = [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]
    return messages[: turns[n_answers - 1] + 1]


def _first_difference(ids: Sequence[int], rendered: Sequence[int]) -> int | None:
    """Return where `rendered` stops to begin as `ids` do; what it has behind them is the template's."""
    for at, token in enumerate(ids):
        if at >= len(rendered) or rendered[at] != token:
            return at
    return None


def _joined(given: Given) -> list[int]:
    return [*given.ending.tolist(), *given.ids.tolist()]


def _truncated(dialogue: Dialogue) -> bool:
    return dialogue.answers[-1].finish == "length"


def _check(answers: Sequence[Answer], asked: Sequence[Dialogue], sampling: Sampling) -> None:
    """Raise `RunFailedError` where an engine lost count, or an answer is empty or longer than its room."""
    problems = []
    if len(answers) != len(asked):
        message = f"expected {len(asked)} answers back, got {len(answers)}"
        problems.append(Problem(where="answers", kind="count", message=message))
    for dialogue, answer in zip(asked, answers, strict=False):
        room = sampling.room(len(dialogue.ids))
        if not 1 <= len(answer.token_ids) <= room:
            message = f"expected 1 to {room} tokens, got {len(answer.token_ids)}"
            problems.append(Problem(where=dialogue.prompt.source, kind="answer", message=message))
    if problems:
        raise RunFailedError("the engine does not answer as it was asked to", problems)
