"""The target's own states for given token ids: run now by a model, or kept in an audit set.

An audit set has states of its own few samples, so it answers for ids that begin as one of them do: states are
causal, and the rows of a common beginning are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Capture, Engine
from datagen.engines.errors import BatchError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.reference import has_experts
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.planning.audit import audit_schema
from datagen.planning.audit_names import lacking_of
from datagen.replay.identify_rows import States
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.schema import INPUT_IDS, DType
from schemas.target import Target

Ids = NDArray[np.int64]
MIN_COMMON = 4
"""Tokens of a common beginning, fewer of which say nothing of a layer: many samples begin with them."""


class KnownSample(NamedTuple):
    """Token ids whose states can be asked for, and what a person knows them by."""

    label: str
    token_ids: Ids


class Source(Protocol):
    """Who can say what the target's states are."""

    @property
    def said(self) -> str:
        """In words."""
        ...

    @property
    def target(self) -> Target: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def routes(self) -> bool:
        """Whether the target routes tokens to experts: some are then far off for a choice of rounding."""
        ...

    def states(self, token_ids: Ids) -> States | Problem:
        """Return every boundary's states `[t, H]` of the first `t` of these ids, by name."""
        ...

    def samples(self) -> Iterator[KnownSample]:
        """Yield the samples that it has of its own."""
        ...


@dataclass(frozen=True)
class ModelSource:
    """The target, run over the ids; its engine hands out every boundary."""

    engine: Engine
    routes: bool = False

    @classmethod
    def of(cls, settings: EngineSettings) -> "ModelSource":
        """Load the model; raises `OpeningError` as the engine does."""
        schema = audit_schema(read_target(settings), settings.dtype)
        return cls(open_engine(settings, schema), has_experts(settings))

    @property
    def said(self) -> str:
        return f"{self.target.model_id} in {self.dtype}, by {self.engine.info.version}"

    @property
    def target(self) -> Target:
        return self.engine.target

    @property
    def dtype(self) -> DType:
        return self.engine.schema.tensors[0].dtype

    def states(self, token_ids: Ids) -> States | Problem:
        captured = self._capture(token_ids)
        return captured if isinstance(captured, Problem) else captured.tensors

    def _capture(self, token_ids: Ids, *, with_argmax: bool = False) -> Capture | Problem:
        try:
            (capture,) = self.engine.submit([token_ids.tolist()], with_argmax=with_argmax).result()
        except BatchError as error:
            return Problem(where="token_ids", kind="token_ids", message=error.problems[0].message)
        return capture

    def samples(self) -> Iterator[KnownSample]:
        yield from ()


class AuditSource:
    """An audit set; its ids are in memory, its states are read when they are asked for."""

    routes = False

    def __init__(self, snapshot: Snapshot, name: str) -> None:
        if lacking := lacking_of(snapshot.schema):
            raise _not_whole(name, lacking)
        self._snapshot = snapshot
        self._name = name
        self._ids = {
            sample_id: snapshot.read(sample_id, names=()).tokens[INPUT_IDS.name].astype(np.int64)
            for sample_id in snapshot.sample_ids
        }

    @property
    def said(self) -> str:
        return f"{self.target.model_id} in {self.dtype}, by the audit set {self._name}"

    @property
    def target(self) -> Target:
        return self._snapshot.schema.target

    @property
    def dtype(self) -> DType:
        return self._snapshot.schema.tensors[0].dtype

    def states(self, token_ids: Ids) -> States | Problem:
        lengths = {sample_id: common_beginning(ids, token_ids) for sample_id, ids in self._ids.items()}
        best = max(lengths, key=lengths.__getitem__, default=None)
        if best is None or lengths[best] < min(MIN_COMMON, len(token_ids)):
            n_same = 0 if best is None else lengths[best]
            message = (
                f"expected a sample of {self._name} that begins as these {len(token_ids)} tokens do, got "
                f"{len(self._ids)} samples of which the nearest has {n_same} tokens in common"
            )
            repair = "give the target itself (--target), which runs over any token ids"
            return Problem(where="token_ids", kind="audit", message=message, repair=repair)
        return self._snapshot.read(best, tokens=slice(0, lengths[best])).tensors

    def samples(self) -> Iterator[KnownSample]:
        for sample_id, ids in self._ids.items():
            yield KnownSample(f"audit sample {sample_id[:16]}", ids)


def _not_whole(name: str, lacking: Sequence[str]) -> ConfigError:
    """Return why a dataset that lacks tensors cannot say which one a slot is: it may be one of those."""
    message = f"expected every boundary, as a run's audit set has, got none of {', '.join(lacking)}"
    headline, repair = "this is no audit set", f"name the companion, {name}.audit"
    if name.endswith(".audit"):
        message = f"expected every boundary, got a set whose engine could not give {', '.join(lacking)}"
        headline = "this audit set cannot tell which tensor a slot is"
        repair = "give the target itself (--target) in its place: what a slot is may be what is lacking"
    return ConfigError(headline, [Problem(where=name, kind="audit", message=message, repair=repair)])


class BothSources:
    """An audit set where it has all of the ids, the model for all others."""

    def __init__(self, audit: AuditSource, model: ModelSource) -> None:
        differences = identity_differences("target", model.target.identity(), audit.target.identity())
        if differences:
            raise ConfigError("the audit set is of another target than the model that was given", differences)
        self._audit, self._model = audit, model
        self.target, self.routes = model.target, model.routes
        self.dtype = audit.dtype if model.dtype == "float32" else model.dtype

    @property
    def said(self) -> str:
        return f"{self._model.said}, and where it has the tokens, {self._audit.said}"

    def states(self, token_ids: Ids) -> States | Problem:
        states = self._audit.states(token_ids)
        if isinstance(states, Problem) or len(next(iter(states.values()))) < len(token_ids):
            return self._model.states(token_ids)
        return states

    def samples(self) -> Iterator[KnownSample]:
        return self._audit.samples()


def common_beginning(left: Ids, right: Ids) -> int:
    """Return how many ids two samples have in common from the first on.

    >>> common_beginning(np.array([5, 6, 7]), np.array([5, 6, 8, 9]))
    2
    """
    n = min(len(left), len(right))
    differ = np.flatnonzero(left[:n] != right[:n])
    return int(differ[0]) if len(differ) else n


def beginnings(samples: Sequence[KnownSample]) -> list[KnownSample]:
    """Return the samples, each ids once: the same ids have the same states."""
    return list({sample.token_ids.tobytes(): sample for sample in reversed(samples)}.values())[::-1]
