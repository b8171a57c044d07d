"""An engine that does one thing wrong, wrapped around a right one: what goes wrong in the field."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Capture, Engine, EngineInfo, Pending
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.schema import Schema
from schemas.target import Target

Fault = Callable[[Sequence[Capture]], Sequence[Capture]]
Change = Callable[[Capture], Capture]


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


def longest(change: Change) -> Fault:
    """Return the fault of one sample of each batch: the first, which is the longest."""
    return lambda captures: [change(captures[0]), *captures[1:]] if captures else captures


def every(change: Change) -> Fault:
    """Return the fault of every sample."""
    return lambda captures: [change(capture) for capture in captures]


def of_length(n_tokens: int, change: Change) -> Fault:
    """Return the fault of the samples of one length."""
    return every(lambda capture: change(capture) if len(capture.token_ids) == n_tokens else capture)


def with_tensor(name: str, change: Callable[[NDArray[np.generic]], NDArray[np.generic]]) -> Change:
    """Return the change of one tensor, its norms with it, as an engine that is wrong computes them."""

    def changed(capture: Capture) -> Capture:
        rows = np.ascontiguousarray(change(capture.tensors[name]))
        norms = np.linalg.norm(rows.astype(np.float32), axis=-1).astype(np.float32)
        return replace(capture, tensors={**capture.tensors, name: rows}, norms={**capture.norms, name: norms})

    return changed


def dropped(name: str) -> Change:
    """Return the change that leaves a tensor out."""
    return lambda capture: replace(
        capture, tensors={other: rows for other, rows in capture.tensors.items() if other != name}
    )


def swapped(one: str, other: str) -> Change:
    """Return the change that gives two tensors each other's names."""
    names = {one: other, other: one}
    return lambda capture: replace(
        capture,
        tensors={name: capture.tensors[names.get(name, name)] for name in capture.tensors},
        norms={name: capture.norms[names.get(name, name)] for name in capture.norms},
    )


def post_norm(engine: Engine) -> Change:
    """Return the change that gives `final` after its norm, as transformers' `hidden_states[-1]` is."""
    dtype = engine.schema.tensors[0].dtype
    normed = engine.handing_out(Schema.declare(engine.target, (FINAL_NORMED,), dtype))

    def changed(capture: Capture) -> Capture:
        (after,) = normed.submit([capture.token_ids.tolist()]).result()
        return with_tensor(FINAL, lambda _: after.tensors[FINAL_NORMED])(capture)

    return changed


def another_requests(captures: Sequence[Capture]) -> Sequence[Capture]:
    """Give every sample the states of the next one in its batch that is as long."""
    by_length: dict[int, list[int]] = {}
    for at, capture in enumerate(captures):
        by_length.setdefault(len(capture.token_ids), []).append(at)
    given = list(captures)
    for places in by_length.values():
        for at, other in zip(places, [*places[1:], places[0]], strict=True):
            given[at] = replace(captures[other], token_ids=captures[at].token_ids)
    return given


def without_beginning(n_cached: int) -> Change:
    """Return the change that leaves out the rows of a cached prefix, the ids being whole."""
    return lambda capture: replace(
        capture,
        tensors={name: rows[n_cached:] for name, rows in capture.tensors.items()},
        norms={name: norms[n_cached:] for name, norms in capture.norms.items()},
    )


def ids_shifted(capture: Capture) -> Capture:
    """Say that the next token was run at each position."""
    return replace(capture, token_ids=np.roll(capture.token_ids, -1))


class Stale:
    """Hands out what the batch before left in a buffer that was used again, as far as it reaches."""

    def __init__(self) -> None:
        self._before: Sequence[Capture] = ()

    def __call__(self, captures: Sequence[Capture]) -> Sequence[Capture]:
        before, self._before = self._before, captures
        given, start = [], 0
        for capture in captures:
            end = start + len(capture.token_ids)
            tensors = {name: _over(rows, before, name, start) for name, rows in capture.tensors.items()}
            norms = {
                name: np.linalg.norm(rows.astype(np.float32), axis=-1).astype(np.float32)
                for name, rows in tensors.items()
            }
            given.append(replace(capture, tensors=tensors, norms=norms))
            start = end
        return given


def _over(rows: NDArray[np.generic], before: Sequence[Capture], name: str, start: int) -> NDArray[np.generic]:
    if not before:
        return rows
    buffer = np.concatenate([capture.tensors[name] for capture in before])[start : start + len(rows)]
    return np.concatenate([buffer, rows[len(buffer) :]])


def slow(seconds: float) -> Fault:
    """Return the fault of an engine that takes its time."""

    def later(captures: Sequence[Capture]) -> Sequence[Capture]:
        time.sleep(seconds)
        return captures

    return later
