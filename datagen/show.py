"""What is in a dataset, as a person wants to know it: the table that unmasked the incident, with names.

Norms are of tokens: one sink token (its norm 165 times the median, on SmolLM2) drowns every whole-tensor
figure, so the median and the 99th percentile stand first, and the first and the last token on their own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.planning.audit import AuditReading, audit_name, read_audit
from datagen.store.dataset import Dataset, Snapshot
from datagen.store.door import Door
from datagen.store.errors import NotFoundError
from schemas.calibration import CalibrationRecord
from schemas.problem import Problem
from schemas.records import RunEnd, RunStart, VersionRecord
from schemas.run_checks import RunChecks
from schemas.schema import TensorSpec

MAX_SAMPLES = 1000
"""Norms are read of at most so many samples, those with the lowest ids: hashes, so they are a fair draw."""
MAX_VERSIONS = 10


@dataclass(frozen=True)
class TensorLine:
    """One tensor and its token norms; `first` and `last` are medians over samples of that token's."""

    spec: TensorSpec
    median: float
    p99: float
    mean: float
    deviation: float
    first: float
    last: float


@dataclass(frozen=True)
class DatasetView:
    """Everything that `strata show` prints of a dataset."""

    name: str
    snapshot: Snapshot
    versions: tuple[VersionRecord, ...]
    runs: tuple[tuple[RunStart, RunEnd | None], ...]
    quarantined: Mapping[str, int]
    n_trained: int
    lengths: tuple[int, int, int]
    """Tokens of the shortest, the median and the longest sample."""
    lines: tuple[TensorLine, ...]
    n_measured: int
    audit: AuditReading | None
    calibrations: tuple[CalibrationRecord, ...]
    """What the audit set was held against when it was made, oldest first."""
    checks: tuple[RunChecks, ...]
    """What the content checks of each run came to, oldest first."""


@dataclass(frozen=True)
class SampleView:
    """Everything that `strata show --sample` prints."""

    sample_id: str
    prompt_id: str
    conversation_id: str
    source: str
    part_id: str
    n_tokens: int
    n_trained: int
    lines: tuple[TensorLine, ...]
    text: str | None


def view_dataset(door: Door, name: str, version: int | str | None) -> DatasetView:
    """Return what is in a dataset; raises `NotFoundError` when it, or its version, is not there."""
    dataset = Dataset.open(door, name)
    snapshot = dataset.snapshot(version)
    newest = snapshot.version.number
    numbers = range(max(1, newest - MAX_VERSIONS + 1), newest + 1)
    measured = snapshot.sample_ids[:MAX_SAMPLES]
    ends = {end.run_id: end for end in dataset.run_ends()}
    lengths = snapshot.index.lengths
    low, middle, high = np.quantile(lengths, [0, 0.5, 1]) if len(lengths) else (0, 0, 0)
    return DatasetView(
        name=name,
        snapshot=snapshot,
        versions=tuple(dataset.version(number) for number in numbers),
        runs=tuple((start, ends.get(start.run_id)) for start in dataset.run_starts()),
        quarantined=Counter(row.reason for row in snapshot.quarantined()),
        n_trained=int(snapshot.index.trained_lengths.sum()),
        lengths=(int(low), int(middle), int(high)),
        lines=_lines(snapshot, (snapshot.read(sample_id, names=()).norms for sample_id in measured)),
        n_measured=len(measured),
        audit=_audit(door, name),
        calibrations=_calibrations(door, name),
        checks=tuple(dataset.run_checks()),
    )


def view_sample(door: Door, name: str, version: int | str | None, prefix: str) -> SampleView:
    """Return one sample, by its id or the beginning of it.

    Raises `NotFoundError` when there is none, or when several begin so.
    """
    snapshot = Dataset.open(door, name).snapshot(version)
    sample_id = _by_prefix(snapshot, prefix)
    location = snapshot.location(sample_id)
    sample = snapshot.read(sample_id, names=())
    written = snapshot.part(location).sample(location.row_start, location.n_tokens)
    return SampleView(
        sample_id=sample_id,
        prompt_id=location.prompt_id,
        conversation_id=location.conversation_id,
        source=written.source,
        part_id=location.part_id,
        n_tokens=location.n_tokens,
        n_trained=int(sample.tokens["loss_mask"].sum()),
        lines=_lines(snapshot, [sample.norms]),
        text=written.text,
    )


def _by_prefix(snapshot: Snapshot, prefix: str) -> str:
    found = [sample_id for sample_id in snapshot.sample_ids if sample_id.startswith(prefix.lower())]
    if len(found) == 1:
        return found[0]
    message = f"expected one sample whose id begins with {prefix!r}, got {len(found)}"
    repair = f"ids begin like {snapshot.sample_ids[0][:16]}" if not found and len(snapshot) else None
    raise NotFoundError(
        "no such sample", [Problem(where="sample", kind="sample", message=message, repair=repair)]
    )


def _audit(door: Door, name: str) -> AuditReading | None:
    try:
        return read_audit(Dataset.open(door, audit_name(name)).snapshot())
    except NotFoundError:
        return None  # a dataset made without one


def _calibrations(door: Door, name: str) -> tuple[CalibrationRecord, ...]:
    try:
        return tuple(Dataset.open(door, audit_name(name)).calibrations())
    except NotFoundError:
        return ()  # a dataset made without one


def _lines(snapshot: Snapshot, norms: Iterable[Mapping[str, NDArray[np.float32]]]) -> tuple[TensorLine, ...]:
    gathered: dict[str, list[NDArray[np.float32]]] = {name: [] for name in snapshot.schema.names}
    for sample in norms:
        for name, values in sample.items():
            gathered[name].append(values)
    return tuple(_line(spec, gathered[spec.name]) for spec in snapshot.schema.tensors if gathered[spec.name])


def _line(spec: TensorSpec, pieces: Sequence[NDArray[np.float32]]) -> TensorLine:
    norms = np.concatenate(pieces).astype(np.float64)
    median, p99 = np.quantile(norms, [0.5, 0.99])
    return TensorLine(
        spec=spec,
        median=float(median),
        p99=float(p99),
        mean=float(norms.mean()),
        deviation=float(norms.std()),
        first=float(np.median([piece[0] for piece in pieces])),
        last=float(np.median([piece[-1] for piece in pieces])),
    )
