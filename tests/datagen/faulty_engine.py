"""An engine that does one thing wrong, wrapped around a right one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Capture, Engine, EngineInfo, Pending
from schemas.schema import Schema
from schemas.target import Target

Fault = Callable[[Sequence[Capture]], Sequence[Capture]]


@dataclass
class Spoilt:
    """Work whose result goes through a fault."""

    pending: Pending
    fault: Fault

    def result(self) -> Sequence[Capture]:
        return self.fault(self.pending.result())


@dataclass
class FaultyEngine:
    """Hands out what `engine` does, spoilt by `fault`."""

    engine: Engine
    fault: Fault

    @property
    def info(self) -> EngineInfo:
        return self.engine.info

    @property
    def target(self) -> Target:
        return self.engine.target

    @property
    def schema(self) -> Schema:
        return self.engine.schema

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> Pending:
        return Spoilt(self.engine.submit(batch, with_argmax=with_argmax), self.fault)

    def handing_out(self, schema: Schema) -> Engine:
        return FaultyEngine(self.engine.handing_out(schema), self.fault)

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        return self.engine.head_argmax(final)

    def close(self) -> None:
        self.engine.close()
