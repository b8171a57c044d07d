"""The norms of unnamed states, and what norms alone allow to be said of them: much less than a name.

A norm is a token's. A whole tensor's norm is that of one sink token, which hides even a hundred foreign rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.checks.rows import row_norms, wide

SINK = 10.0
"""A token whose norm is so many times the median's is a sink; behind a norm it would have been levelled."""
EQUAL = 1e-3
"""Norms of the same token that differ by no more are the same, rounding left out."""
_MIN_REPEATED = 8
"""Rows of tokens that come more than once, from which on their norms are compared."""


@dataclass(frozen=True)
class NormLine:
    """The L2 norms of a slot's rows; rows that hold NaN or Inf are left out, `None` where all do."""

    median: float
    p99: float
    mean: float
    largest: float
    first: float
    last: float


def norm_line(rows: NDArray[np.generic]) -> NormLine | None:
    """Return the norms of `rows` `[R, H]`."""
    norms = finite_norms(rows)
    if not len(norms):
        return None
    median, p99, largest = np.quantile(norms, [0.5, 0.99, 1.0])
    ends = float(norms[0]), float(norms[-1])
    return NormLine(float(median), float(p99), float(norms.mean()), float(largest), *ends)


def finite_norms(rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the norm of each row that is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(wide(rows)).astype(np.float64)
    return norms[np.isfinite(norms)]


def norms_allow(
    rows: NDArray[np.generic], token_ids: NDArray[np.int64] | None, before: Sequence[NormLine | None]
) -> Iterator[str]:
    """Yield what the norms of a slot say, where `before` are the lines of the slots before it in the file."""
    line = norm_line(rows)
    if line is None:
        yield "no row is finite"
        return
    if line.largest > SINK * line.median > 0:
        times = line.largest / line.median
        yield f"a token's norm is {times:,.0f} times the median: not behind a norm, which would level it"
    spread = _same_token_spread(rows, token_ids)
    if spread is not None and spread <= EQUAL:
        yield "the same token has the same norm wherever it stands, as in `embed`"
    elif spread is not None:
        yield f"norms of the same token differ by {spread:.1%}: not `embed`, unless it has positions added"
    earlier = [known for known in before if known is not None]
    if earlier and line.median < earlier[-1].median:
        yield "smaller than the slot before: behind a norm or of less depth, where norms grow with depth"


def _same_token_spread(rows: NDArray[np.generic], token_ids: NDArray[np.int64] | None) -> float | None:
    """Return the median over repeated tokens of how far their norms lie apart; `None` where few repeat.

    The first row is left out: it is a sink on most models.
    """
    if token_ids is None or len(token_ids) != len(rows):
        return None
    norms = row_norms(wide(rows)).astype(np.float64)[1:]
    _, which, counts = np.unique(token_ids[1:], return_inverse=True, return_counts=True)
    repeated = counts > 1
    if counts[repeated].sum() < _MIN_REPEATED or not np.isfinite(norms).all():
        return None
    apart = [
        (held.max() - held.min()) / max(held.max(), 1e-30)
        for held in (norms[which == token] for token in np.flatnonzero(repeated))
    ]
    return float(np.median(apart))
