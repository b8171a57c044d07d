"""One unit becomes one part: batches through the engine, checks, and a writer that never holds it up.

The engine is kept one batch ahead, and samples are written by a thread of their own behind a bounded queue,
so neither a GPU nor a CPU waits for the disk.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datagen.checks import (
    Calibration,
    bears_witness,
    beginning,
    candidates,
    copied_beginning,
    profile_problems,
    recapture_problems,
    sample_problems,
)
from datagen.engines.base import Capture, Engine, Pending
from datagen.errors import RunFailedError
from datagen.prompts.prompt import Prompt
from datagen.store.closed_part import ClosedPart
from datagen.store.door import Door
from datagen.store.errors import RefusedError
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from datagen.units import Unit, batches
from schemas.problem import Problem
from schemas.records import QuarantinedSample, QuarantineReason

QUEUED_BATCHES = 2
"""Samples of a batch share its buffer: a bound in batches is a bound in memory."""


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
    wrong: tuple[Problem, ...] = ()


@dataclass
class UnitProgress:
    """How far a unit is; read by another thread while it grows."""

    unit: str = ""
    samples: int = 0
    tokens: int = 0
    payload_bytes: int = 0
    quarantined: int = 0
    answered: int = 0
    """Samples whose answers are there, captured or not."""

    def begin(self, unit: str) -> None:
        """Start to count anew, for another unit."""
        self.unit = unit
        self.samples = self.tokens = self.payload_bytes = self.quarantined = self.answered = 0


@dataclass
class PartMaker:
    """Makes parts of one dataset with one engine."""

    engine: Engine
    door: Door
    dataset: str
    run_id: str
    batch_tokens: int
    calibration: Calibration = field(default_factory=Calibration)
    recapture: bool = True
    with_argmax: bool = False
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
            with _WriteBehind(self, writer) as behind:
                batched = list(batches(unit.prompts, self.batch_tokens))
                again = candidates(batched) if self.recapture else ()
                behind.keep = {prompt.sample_id for prompt in again}
                unfinished, engine_seconds = self._capture(batched, behind)
            checking = time.monotonic()
            wrong = self._part_problems(again, behind)
            check_seconds = behind.check_seconds + time.monotonic() - checking
            part = writer.close() if writer.n_samples and not wrong else None
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
            wrong=tuple(wrong),
        )

    def _capture(
        self, batched: Sequence[Sequence[Prompt]], behind: "_WriteBehind"
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

    def _part_problems(self, again: Sequence[Prompt], behind: "_WriteBehind") -> list[Problem]:
        schema = self.engine.schema
        problems = list(profile_problems(schema, behind.norms, self.calibration.profiles))
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
        self, unit: Unit, unfinished: Sequence[Prompt], behind: "_WriteBehind", wrong: Sequence[Problem]
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


def _hand_over(batch: Sequence[Prompt], pending: Pending, behind: "_WriteBehind") -> None:
    captures = pending.result()
    if len(captures) != len(batch):
        message = f"expected {len(batch)} samples back, got {len(captures)}"
        raise RunFailedError("the engine lost count", [Problem(where="batch", kind="count", message=message)])
    behind.put(list(zip(batch, captures, strict=True)))


class _WriteBehind:
    """The writer's thread: checks and appends samples in the order they come, collects those refused."""

    def __init__(self, maker: PartMaker, writer: PartWriter) -> None:
        self.quarantined: list[QuarantinedSample] = []
        self.keep: set[str] = set()
        self.kept: dict[str, Capture] = {}
        """What a second pass is held against, of the samples to `keep` that were not refused."""
        self.check_seconds = 0.0
        self._schema = maker.engine.schema
        self._calibration = maker.calibration
        self.norms: dict[str, list[NDArray[np.float32]]] = {}
        self._writer = writer
        self._run_id = maker.run_id
        self._progress = maker.progress
        self._queue: queue.Queue[list[tuple[Prompt, Capture]] | None] = queue.Queue(QUEUED_BATCHES)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write-behind", daemon=True)

    def __enter__(self) -> "_WriteBehind":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def put(self, batch: list[tuple[Prompt, Capture]]) -> None:
        """Queue the samples of a batch; raises what the writer's thread failed with."""
        self._raise()
        self._queue.put(batch)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            if self._failure is None:
                try:
                    for prompt, capture in batch:
                        self._add(prompt, capture)
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, and raised there
                    self._failure = error

    def _add(self, prompt: Prompt, capture: Capture) -> None:
        # Of this thread alone: how long it waited for a processor is no cost of the checks.
        checking = time.thread_time()
        found = sample_problems(self._schema, self._calibration, prompt, capture)
        self.check_seconds += time.thread_time() - checking
        if found is not None:
            reason, problems = found
            self._refuse(prompt, reason, *problems)
            return
        try:
            self._writer.add(_sample_data(prompt, capture))
        except RefusedError as error:
            kinds = {problem.kind for problem in error.problems}
            reason = "non_finite" if kinds == {"non_finite"} else "wrong_content"
            self._refuse(prompt, reason, *error.problems)
            return
        if prompt.sample_id in self.keep:
            self.kept[prompt.sample_id] = copied_beginning(prompt, self._calibration, capture)
        for name, norms in capture.norms.items():
            self.norms.setdefault(name, []).append(norms)
        self._progress.samples = self._writer.n_samples
        self._progress.tokens = self._writer.n_tokens
        self._progress.payload_bytes = self._writer.payload_bytes

    def _refuse(self, prompt: Prompt, reason: QuarantineReason, *problems: Problem) -> None:
        self._progress.quarantined += 1
        detail = "; ".join(str(problem) for problem in problems)
        self.quarantined.append(quarantined(prompt, reason, detail, self._run_id))


def _sample_data(prompt: Prompt, capture: Capture) -> SampleData:
    tokens: dict[str, NDArray[np.generic]] = {
        "input_ids": np.ascontiguousarray(prompt.input_ids, dtype=np.int32),
        "loss_mask": np.ascontiguousarray(prompt.loss_mask, dtype=np.uint8),
    }
    if capture.argmax is not None:
        tokens["target_argmax"] = capture.argmax
    return SampleData(
        sample_id=prompt.sample_id,
        prompt_id=prompt.prompt_id,
        conversation_id=prompt.conversation_id,
        source=prompt.source,
        tokens=tokens,
        tensors=capture.tensors,
        norms=capture.norms,
        text=prompt.text,
    )


def quarantined(prompt: Prompt, reason: QuarantineReason, detail: str, run_id: str) -> QuarantinedSample:
    """Return the record of a sample that was not made."""
    return QuarantinedSample(
        source=prompt.source,
        reason=reason,
        detail=detail,
        run_id=run_id,
        conversation_id=prompt.conversation_id,
        prompt_id=prompt.prompt_id,
        sample_id=prompt.sample_id if prompt.ask is None else None,
    )
