"""A version's figures, from its index alone: no tensor is read."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.snapshot import Snapshot


class Spread(BaseModel):
    """How a figure of samples is spread over them."""

    min: float
    p1: float
    median: float
    p99: float
    max: float


class NormProfile(BaseModel):
    """A tensor's rows by their L2 norm: of each sample the median and the 99th percentile, over all samples.

    One sink token drowns a mean (its norm is a hundred times the others'), so there is none.
    """

    tensor: str
    median: Spread
    p99: Spread


class LengthBin(BaseModel):
    """How many samples have `low` to `high` tokens, both included."""

    low: int
    high: int
    n_samples: int


class Statistics(BaseModel):
    """A version's figures."""

    n_samples: int
    n_tokens: int
    n_trained: int
    n_parts: int
    size_bytes: int
    tensor_bytes: dict[str, int]
    lengths: Spread | None
    length_histogram: list[LengthBin]
    norms: list[NormProfile]
    n_quarantined: int
    quarantined: dict[str, int]


def statistics_of(snapshot: Snapshot) -> Statistics:
    """Return a version's figures; raises `CorruptError` when its quarantine cannot be read."""
    index, version = snapshot.index, snapshot.version
    medians, tails = index.norms("norm_median"), index.norms("norm_p99")
    names = snapshot.schema.names if len(snapshot) else ()
    return Statistics(
        n_samples=len(snapshot),
        n_tokens=index.n_tokens,
        n_trained=int(index.trained_lengths.sum(dtype=np.int64)),
        n_parts=len(index.parts()),
        size_bytes=version.size_bytes,
        tensor_bytes={spec.name: spec.row_bytes * index.n_tokens for spec in snapshot.schema.tensors},
        lengths=_spread(index.lengths) if len(snapshot) else None,
        length_histogram=_histogram(index.lengths),
        norms=[
            NormProfile(tensor=name, median=_spread(medians[:, at]), p99=_spread(tails[:, at]))
            for at, name in enumerate(names)
        ],
        n_quarantined=version.n_quarantined,
        quarantined=_reasons(snapshot),
    )


def _reasons(snapshot: Snapshot) -> dict[str, int]:
    try:
        rows = snapshot.quarantined()
    except NotFoundError as error:
        # The version's record names the file: it must be there.
        raise CorruptError("the quarantine of this version is damaged", error.problems) from error
    return dict(sorted(Counter(row.reason for row in rows).items()))


def _spread(values: NDArray[np.generic]) -> Spread:
    low, p1, median, p99, high = np.quantile(values.astype(np.float64), [0, 0.01, 0.5, 0.99, 1]).tolist()
    return Spread(min=low, p1=p1, median=median, p99=p99, max=high)


def _histogram(lengths: NDArray[np.int32]) -> list[LengthBin]:
    """Count lengths by powers of two: 1, 2-3, 4-7 ..., up to the longest."""
    if not len(lengths):
        return []
    counts = np.bincount(np.frexp(lengths)[1])[1:]
    return [
        LengthBin(low=2**power, high=2 ** (power + 1) - 1, n_samples=int(count))
        for power, count in enumerate(counts)
    ]
