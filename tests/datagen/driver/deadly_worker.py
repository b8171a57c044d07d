"""Workers that die, or fail, at one sample: importable by the actors' processes."""

import os
import signal
from functools import cached_property
from pathlib import Path

from datagen.checks import Calibration
from datagen.engines.errors import OpeningError
from datagen.planning.units import Unit
from datagen.worker.actor import Worker, WorkerFacts
from datagen.worker.making import UnitResult
from schemas.problem import Problem

DEADLY_LENGTH = 77
"""A prompt of so many tokens kills whoever captures it."""


class DeadlyWorker(Worker):
    """Is killed (as by the out-of-memory killer) in the middle of a unit that holds a deadly sample."""

    def make(self, unit: Unit) -> UnitResult:
        if any(len(prompt.input_ids) == DEADLY_LENGTH for prompt in unit.prompts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().make(unit)


class RaisingWorker(Worker):
    """Raises what no one foresaw for a unit that holds a deadly sample."""

    def make(self, unit: Unit) -> UnitResult:
        if any(len(prompt.input_ids) == DEADLY_LENGTH for prompt in unit.prompts):
            raise ZeroDivisionError("no one foresaw this")
        return super().make(unit)


class BrokenWorker(Worker):
    """Has an engine that makes nothing, in a process that lives on: as after an error of CUDA."""

    def make(self, unit: Unit) -> UnitResult:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class OnceBrokenWorker(Worker):
    """The same for the process that makes the first unit of all, until it is started anew."""

    @cached_property
    def _broken(self) -> bool:
        try:
            os.close(os.open(Path(self._order.root) / "elected", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def make(self, unit: Unit) -> UnitResult:
        if self._broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().make(unit)


class UnloadableWorker(Worker):
    """Cannot load its model."""

    def describe(self) -> WorkerFacts:
        problem = Problem(
            where="model.safetensors", kind="weights", message="expected all weights, got 3 of 9"
        )
        raise OpeningError("the model cannot be loaded", [problem])


class CalibratedWorker(DeadlyWorker):
    """Says what it was told of the audit set."""

    def calibration(self) -> Calibration:
        return self._calibration
