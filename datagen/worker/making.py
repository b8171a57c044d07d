"""One unit becomes one part: batches through the engine, checks, and a writer that never holds it up.

The engine is kept one batch ahead of what is checked and written.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from datagen.checks import (
    Binding,
    BindingCounts,
    Calibration,
    OnPolicy,
    OnPolicyCounts,
    PartBinding,
    bears_witness,
    beginning,
    candidates,
    profile_problems,
    recapture_problems,
    unbound,
)
from datagen.checks.on_policy import greedy_problem
from datagen.engines.base import Engine, Pending
from datagen.errors import RunFailedError
from datagen.planning.units import Unit, batches
from datagen.prompts.prompt import Prompt
from datagen.store.closed_part import ClosedPart
from datagen.store.door import Door
from datagen.store.part import PartWriter
from datagen.worker.write_behind import PartChecks, UnitProgress, WriteBehind, quarantined
from schemas.problem import Problem
from schemas.records import QuarantinedSample

HowAnswered = Literal["no", "greedily", "sampled"]


@dataclass(frozen=True)
class UnitResult:
    """What came of a unit: at most one part, the samples refused, and those left when it was told to stop.

    `wrong` says why the part as a whole was refused, and with it every sample of it. `check_seconds` is the
    time that content checks took, in the writer's thread and, for a sample's second pass, in the engine.
    """

    unit: str
    part: ClosedPart | None
    quarantined: tuple[QuarantinedSample, ...]
    unfinished: tuple[Prompt, ...]
    n_tokens: int
    engine_seconds: float
    seconds: float
    check_seconds: float = 0.0
    binding: BindingCounts = field(default_factory=BindingCounts)
    on_policy: OnPolicyCounts = field(default_factory=OnPolicyCounts)
    wrong: tuple[Problem, ...] = ()


@dataclass
class PartMaker:
    """Makes parts of one dataset with one engine."""

    engine: Engine
    door: Door
    dataset: str
    run_id: str
    batch_tokens: int
    calibration: Calibration = field(default_factory=Calibration)
    binding: Binding = field(default_factory=lambda: unbound("by nothing (not calibrated)"))
    recapture: bool = True
    answered: HowAnswered = "no"
    """How the trained tokens came about: by the target itself, or not."""
    with_argmax: bool = False
    keeping: bool = True
    """Whether a part is closed; else it is made and removed, to see whether it can be made."""
    progress: UnitProgress = field(default_factory=UnitProgress)
    stopping: Callable[[], bool] = lambda: False

    def make(self, unit: Unit) -> UnitResult:
        """Return the part of a unit; raises `StoreError` or `EngineError`, and then leaves no part.

        A part whose norms are not those of the calibration, or of which a sample is not what a second pass
        gives, is not made: all its samples are refused.
        """
        begun = time.monotonic()
        self.progress.unit = unit.number
        self.progress.samples = self.progress.tokens = self.progress.payload_bytes = 0
        writer = PartWriter(self.door, self.dataset, self.engine.schema, self.run_id)
        try:
            batched = list(batches(unit.prompts, self.batch_tokens))
            again = candidates(batched) if self.recapture else ()
            checks = self._checks(batched, again)
            with WriteBehind(writer, self.engine.schema, self.run_id, self.progress, checks) as behind:
                unfinished, engine_seconds = self._capture(batched, behind)
            checking = time.monotonic()
            # A sample that was held for its doubt tells more of its part than one that is drawn.
            again = () if behind.settle(self.engine) else again
            on_policy = OnPolicyCounts() if checks.on_policy is None else checks.on_policy.counts(self.engine)
            wrong = self._part_problems(again, behind, on_policy)
            check_seconds = behind.check_seconds + time.monotonic() - checking
            part = writer.close() if writer.n_samples and self.keeping and not wrong else None
        except BaseException:
            writer.abort()
            raise
        if part is None:
            writer.abort()
        return UnitResult(
            unit=unit.number,
            part=part,
            quarantined=self._refused(unit, unfinished, behind, wrong),
            unfinished=unfinished,
            n_tokens=0 if wrong else writer.n_tokens,
            engine_seconds=engine_seconds,
            seconds=time.monotonic() - begun,
            check_seconds=check_seconds,
            binding=checks.binding.counts,
            on_policy=on_policy,
            wrong=tuple(wrong),
        )

    def _checks(self, batched: Sequence[Sequence[Prompt]], again: Sequence[Prompt]) -> PartChecks:
        prompts = [prompt for batch in batched for prompt in batch]
        return PartChecks(
            self.calibration,
            PartBinding(self.binding, self.engine.schema, self.calibration, prompts),
            None if self.answered == "no" else OnPolicy(len(prompts)),
            {prompt.sample_id for prompt in again},
        )

    def _capture(
        self, batched: Sequence[Sequence[Prompt]], behind: WriteBehind
    ) -> tuple[tuple[Prompt, ...], float]:
        waiting: deque[tuple[Sequence[Prompt], Pending]] = deque()
        unfinished: list[Prompt] = []
        engine_seconds = 0.0
        for batch in batched:
            if self.stopping():
                unfinished += batch
                continue
            begun = time.monotonic()
            ids = [prompt.input_ids.tolist() for prompt in batch]
            waiting.append((batch, self.engine.submit(ids, with_argmax=self.with_argmax)))
            if len(waiting) > 1:
                _hand_over(*waiting.popleft(), behind)
            engine_seconds += time.monotonic() - begun
        while waiting:
            begun = time.monotonic()
            _hand_over(*waiting.popleft(), behind)
            engine_seconds += time.monotonic() - begun
        return tuple(unfinished), engine_seconds

    def _part_problems(
        self, again: Sequence[Prompt], behind: WriteBehind, on_policy: OnPolicyCounts
    ) -> list[Problem]:
        schema = self.engine.schema
        problems = list(profile_problems(schema, behind.norms, self.calibration.profiles))
        if self.answered == "greedily" and (problem := greedy_problem(on_policy)) is not None:
            problems.append(problem)
        for prompt in again:
            first = behind.kept.get(prompt.sample_id)
            if first is None:
                continue
            asked = beginning(prompt, self.calibration)
            (capture,) = self.engine.submit([asked.input_ids.tolist()]).result()
            if bears_witness(schema, self.calibration, asked, capture):
                return problems + recapture_problems(schema, first, capture)
        return problems

    def _refused(
        self, unit: Unit, unfinished: Sequence[Prompt], behind: WriteBehind, wrong: Sequence[Problem]
    ) -> tuple[QuarantinedSample, ...]:
        """Return the samples that were refused: with a wrong part, every one that is not left over."""
        if not wrong:
            return tuple(behind.quarantined)
        gone = {row.prompt_id for row in behind.quarantined} | {prompt.prompt_id for prompt in unfinished}
        rest = [prompt for prompt in unit.prompts if prompt.prompt_id not in gone]
        detail = f"with its part: {'; '.join(map(str, wrong))}"
        self.progress.quarantined += len(rest)
        return (
            *behind.quarantined,
            *(quarantined(prompt, "wrong_content", detail, self.run_id) for prompt in rest),
        )


def _hand_over(batch: Sequence[Prompt], pending: Pending, behind: WriteBehind) -> None:
    captures = pending.result()
    if len(captures) != len(batch):
        message = f"expected {len(batch)} samples back, got {len(captures)}"
        raise RunFailedError("the engine lost count", [Problem(where="batch", kind="count", message=message)])
    behind.put(list(zip(batch, captures, strict=True)))
