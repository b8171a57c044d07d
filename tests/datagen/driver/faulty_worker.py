"""Workers whose engine does one thing wrong to samples of one length: importable by the actors' processes."""

import os
import signal
from collections.abc import Sequence
from functools import cached_property

from datagen.engines.base import Capture, Engine
from datagen.engines.opening import open_engine
from datagen.worker.actor import Worker
from tests.datagen.faulty_engine import Fault, FaultyEngine, another_requests, of_length, swapped

FAULTY_LENGTH = 61
"""Beginnings in the audit set are shorter."""


class _FaultyWorker(Worker):
    fault: Fault

    @cached_property
    def _engine(self) -> Engine:
        return FaultyEngine(open_engine(self._order.engine, self._order.schema), type(self).fault)


class SwappingWorker(_FaultyWorker):
    """Its engine swaps two tensors."""

    fault = staticmethod(of_length(FAULTY_LENGTH, swapped("layer2", "final")))


class MixingWorker(_FaultyWorker):
    """Its engine gives every sample another request's states, where one is as long."""

    fault = staticmethod(another_requests)


def _mix(captures: Sequence[Capture]) -> Sequence[Capture]:
    mixed = iter(another_requests([one for one in captures if len(one.token_ids) == FAULTY_LENGTH]))
    return [next(mixed) if len(one.token_ids) == FAULTY_LENGTH else one for one in captures]


class LaterMixingWorker(_FaultyWorker):
    """Its engine does so with the longest samples only: none of the audit set."""

    fault = staticmethod(_mix)


def _die(captures: Sequence[Capture]) -> Sequence[Capture]:
    if any(len(capture.token_ids) == FAULTY_LENGTH for capture in captures):
        os.kill(os.getpid(), signal.SIGKILL)
    return captures


class DyingWorker(_FaultyWorker):
    """Its engine takes the process with it, as CUDA does."""

    fault = staticmethod(_die)
