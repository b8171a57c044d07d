"""The norms of the proven samples, and the samples that are nowhere near them: their slots are others.

A proof is of a few files. A file among the rest whose slots lie in another order, or are of other layers, is
seen where norms differ enough; neighbouring layers' do not, and are for a proof of more files to find.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.problem import Problem

FACTOR = 2.0
"""How many times less than the least proven one a median norm may be, or more than the greatest."""
ENOUGH_TOKENS = 32
"""Of a sample with fewer the median says little."""


class Span(NamedTuple):
    """The least and the greatest median norm of the proven samples."""

    least: float
    greatest: float


def median_norm(norms: NDArray[np.float32]) -> float | None:
    """Return the median of norms `[T]` without the first token's, a sink on most models; `None` of few."""
    return float(np.median(norms[1:])) if len(norms) > ENOUGH_TOKENS else None


def span_of(medians: Sequence[float | None]) -> Span | None:
    """Return the span of the proven samples' medians, `None` where none is known."""
    known = [median for median in medians if median is not None and np.isfinite(median)]
    return Span(min(known), max(known)) if known else None


def norm_problems(
    norms: Mapping[str, NDArray[np.float32]], spans: Mapping[str, Span | None]
) -> Iterator[Problem]:
    """Yield each tensor of a sample whose norms are not near the proven ones."""
    for name, span in spans.items():
        got = median_norm(norms[name])
        if got is None or span is None or span.least / FACTOR <= got <= span.greatest * FACTOR:
            continue
        message = (
            f"expected a median norm between {span.least:.4g} and {span.greatest:.4g} or near it, as the "
            f"proven files have, got {got:.4g}"
        )
        repair = "is it of the same layers? `strata identify` says what it is"
        yield Problem(where=name, kind="norms", message=message, repair=repair)
