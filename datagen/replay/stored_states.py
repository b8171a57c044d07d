"""Are a dataset's states still what the target gives? Some samples are captured again and compared by name.

It is the check that bytes cannot make: of the right tensor, the right tokens, the right sample. On `final`
the target's head must choose as the target itself does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.foreign_samples import ForeignSample, Slot
from datagen.engines.base import Engine, TieTelling
from datagen.engines.opening import open_engine, read_target
from datagen.engines.reference import has_experts
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.planning.audit import MIN_AGREEMENT, audit_schema
from datagen.replay.identify_answer import Found, Identified
from datagen.replay.identify_passes import identify_samples
from datagen.replay.identify_rows import States
from datagen.replay.identify_sources import Ids, ModelSource
from datagen.store.snapshot import Snapshot
from schemas.boundary import FINAL
from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.schema import INPUT_IDS, Schema


@dataclass(frozen=True)
class HeadChoices:
    """On how many positions the head on the stored `final` chose as the target did; `tied` have no choice."""

    positions: int
    tied: int
    agreeing: int

    @property
    def share(self) -> float | None:
        """Of the positions without a tie; `None` where there is none."""
        free = self.positions - self.tied
        return self.agreeing / free if free else None


@dataclass(frozen=True)
class TensorLine:
    """One tensor over all samples: its largest median and 99th percentile, and the smallest of its rival."""

    name: str
    median: float
    p99: float
    rival: str | None
    rival_median: float


def _line(name: str, found: list[Found]) -> TensorLine:
    def far(one: Found) -> float:
        return float("inf") if one.rival_median is None else one.rival_median

    closest = min(found, key=far)
    worst = max(one.median for one in found), max(one.p99 for one in found)
    return TensorLine(name, *worst, closest.rival, far(closest))


@dataclass(frozen=True)
class StatesReport:
    """What a second capture says: of each tensor of each sample, and of the head where there is `final`."""

    n_samples: int
    n_tokens: int
    identified: Identified
    head: HeadChoices | None

    @property
    def lines(self) -> tuple[TensorLine, ...]:
        """Each tensor that was found, in the order of the slots: the worst sample of each figure."""
        by_name: dict[str, list[Found]] = {}
        for slot in self.identified.slots:
            if slot.found is not None and slot.found.name == slot.slot:
                by_name.setdefault(slot.slot, []).append(slot.found)
        return tuple(_line(name, found) for name, found in by_name.items())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every tensor that is not what it is called, and a head that chooses otherwise."""
        found = [*self.identified.problems]
        for slot in self.identified.slots:
            found += slot.problems
        share = self.head.share if self.head else None
        if self.head and share is not None and share < MIN_AGREEMENT:
            message = (
                "expected argmax(lm_head(norm(final))) to be the target's own choice on at least "
                f"{MIN_AGREEMENT:.0%} of the positions without a tie, got {self.head.agreeing:,} of "
                f"{self.head.positions - self.head.tied:,} ({share:.1%})"
            )
            found.append(Problem(where=FINAL, kind="head", message=message))
        return tuple(found)

    @property
    def ok(self) -> bool:
        return all(problem.severity == "note" for problem in self.problems)


@dataclass(frozen=True)
class ChoosingSource(ModelSource):
    """The target, run over the ids, that keeps what it would have said next at each position."""

    choices: dict[bytes, NDArray[np.int32]] = field(default_factory=dict)

    def states(self, token_ids: Ids) -> States | Problem:
        captured = self._capture(token_ids, with_argmax=True)
        if isinstance(captured, Problem):
            return captured
        if captured.argmax is not None:
            self.choices[token_ids.tobytes()] = captured.argmax
        return captured.tensors


def open_target(schema: Schema, model: str, device: str = "auto") -> ChoosingSource:
    """Load the target of a dataset, to capture with it every boundary in the dataset's own dtype.

    Raises `ConfigError` with every difference where the model is not the dataset's target, `OpeningError`
    where it cannot be loaded.
    """
    dtype = schema.tensors[0].dtype
    settings = EngineSettings.model_validate({"model": model, "dtype": dtype, "device": device})
    target = read_target(settings)
    differences = identity_differences("target", target.identity(), schema.target.identity())
    if differences:
        raise ConfigError("the model is not the target of the dataset", differences)
    return ChoosingSource(open_engine(settings, audit_schema(target, dtype)), routes=has_experts(settings))


def verify_states(
    snapshot: Snapshot,
    n_samples: int,
    source: ChoosingSource,
    on_sample: Callable[[int], None] = lambda _done: None,
) -> StatesReport:
    """Capture `n_samples` of a version again, those of the lowest ids (hashes: a fair draw), and compare."""
    chosen = snapshot.sample_ids[:n_samples]
    head = [0, 0, 0]
    n_tokens = 0

    def stored() -> Iterator[ForeignSample]:
        nonlocal n_tokens
        for sample_id in chosen:
            sample = snapshot.read(sample_id)
            ids = sample.tokens[INPUT_IDS.name].astype(np.int64)
            n_tokens += len(ids)
            slots = tuple(Slot(name, sample.tensors[name]) for name in snapshot.schema.names)
            yield ForeignSample(f"sample {sample_id[:16]}", "dataset", ids, slots, claims=True)
            # Behind the yield the sample was held against the target, which has said its choices by now.
            if FINAL in sample.tensors and ids.tobytes() in source.choices:
                counts = _choices(source.engine, sample.tensors[FINAL], source.choices[ids.tobytes()])
                head[:] = [total + count for total, count in zip(head, counts, strict=True)]

    found = identify_samples(stored(), source, on_sample)
    choices = HeadChoices(*head) if FINAL in snapshot.schema.names else None
    return StatesReport(len(chosen), n_tokens, found, choices)


def _choices(engine: Engine, final: NDArray[np.generic], said: NDArray[np.int32]) -> tuple[int, int, int]:
    """Return positions, ties and agreements of one sample's stored `final` `[T, H]`."""
    tied = engine.head_ties(final) if isinstance(engine, TieTelling) else np.zeros(len(said), bool)
    agreeing = (engine.head_argmax(final) == said) & ~tied
    return len(said), int(tied.sum()), int(agreeing.sum())
