"""The writer's thread of a part: checks and appends samples in the order they come, collects those refused.

Behind a bounded queue, so that neither a GPU nor a CPU waits for the disk.
"""

import queue
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datagen.checks import Calibration, OnPolicy, PartBinding, beginning, copied, sample_problems
from datagen.checks.prompt import is_whole
from datagen.engines.base import Capture, Engine
from datagen.prompts.prompt import Prompt
from datagen.store.errors import RefusedError
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from schemas.problem import Problem
from schemas.records import QuarantinedSample, QuarantineReason
from schemas.schema import Schema

QUEUED_BATCHES = 2
"""Samples of a batch share its buffer: a bound in batches is a bound in memory."""


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


@dataclass(frozen=True)
class PartChecks:
    """What the samples of a part are held against; of those to `keep` a copy stays for a second pass."""

    calibration: Calibration
    binding: PartBinding
    on_policy: OnPolicy | None
    keep: Collection[str]


class WriteBehind:
    """Takes batches while it is entered; what it collected is there once it is left."""

    def __init__(
        self,
        writer: PartWriter,
        schema: Schema,
        run_id: str,
        progress: UnitProgress,
        checks: PartChecks,
    ) -> None:
        self.quarantined: list[QuarantinedSample] = []
        self.kept: dict[str, Capture] = {}
        """What a second pass is held against, of the samples to `keep` that were not refused."""
        self.check_seconds = 0.0
        self.norms: dict[str, list[NDArray[np.float32]]] = {}
        self._schema = schema
        self._checks = checks
        self._writer = writer
        self._run_id = run_id
        self._progress = progress
        self._queue: queue.Queue[list[tuple[Prompt, Capture]] | None] = queue.Queue(QUEUED_BATCHES)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write-behind", daemon=True)

    def __enter__(self) -> "WriteBehind":
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
        found = sample_problems(self._schema, self._checks.calibration, prompt, capture)
        bound: Problem | Literal["passed", "held"] = "passed"
        if found is None and is_whole(self._schema, capture):
            bound = self._checks.binding.look(prompt, capture)
        self.check_seconds += time.thread_time() - checking
        if found is not None:
            self._refuse(prompt, found[0], *found[1])
        elif isinstance(bound, Problem):
            self._refuse(prompt, "wrong_content", bound)
        elif bound == "passed":
            self._write(prompt, capture)

    def settle(self, engine: Engine) -> bool:
        """Decide about the samples that were held back, by a second pass each, once the thread has ended.

        Return whether there was one, and all were as the first.
        """
        binding = self._checks.binding
        n_before, differing = binding.counts.again, 0
        for prompt, capture in binding.held:
            (again,) = engine.submit([binding.beginning(prompt).input_ids.tolist()]).result()
            problems = binding.second_pass(prompt, capture, again)
            if problems:
                differing += 1
                self._refuse(prompt, "wrong_content", *problems)
            else:
                self._write(prompt, capture)
        return binding.counts.again > n_before and not differing

    def _write(self, prompt: Prompt, capture: Capture) -> None:
        try:
            self._writer.add(_sample_data(prompt, capture))
        except RefusedError as error:
            kinds = {problem.kind for problem in error.problems}
            reason: QuarantineReason = "non_finite" if kinds == {"non_finite"} else "wrong_content"
            self._refuse(prompt, reason, *error.problems)
            return
        if prompt.sample_id in self._checks.keep:
            n_tokens = beginning(prompt, self._checks.calibration).n_tokens
            self.kept[prompt.sample_id] = copied(capture, n_tokens)
        if self._checks.on_policy is not None:
            self._checks.on_policy.add(prompt, capture)
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
