"""Token norms of a whole part against those of the audit set: another place, a lost norm, zeros.

The first token of each sample is left out on both sides: it is a sink on most models, and how many there are
depends on how long samples are. Neighbouring layers differ by less than the factor: they are for the checks
by rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.problem import Problem
from schemas.schema import Schema

PROFILE_FACTOR = 2.0
"""A part's median norm, or its 99th percentile, may depart from the calibration's by this factor."""
PROFILE_MIN_TOKENS = 512


@dataclass(frozen=True)
class NormProfile:
    """Quantiles of the L2 norms of a tensor's rows: one sink token drowns a mean.

    `p90` and `largest` bracket where another set's 99th percentile may lie: sinks beside the first token are
    about a hundredth of some texts, so that it jumps from one side of them to the other.
    """

    median: float
    p90: float
    p99: float
    largest: float

    @classmethod
    def of(cls, norms: NDArray[np.float32]) -> "NormProfile":
        """Return the profile of norms `[T]`, T at least 1."""
        return cls(*map(float, np.quantile(norms.astype(np.float64), [0.5, 0.9, 0.99, 1.0])))


def behind_first(pieces: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the norms of samples end to end, without the first token of those that have more."""
    return np.concatenate([piece[1:] if len(piece) > 1 else piece for piece in pieces])


def profile_problems(
    schema: Schema, part: Mapping[str, Sequence[NDArray[np.float32]]], calibration: Mapping[str, NormProfile]
) -> Iterator[Problem]:
    """Yield every tensor whose norms over a part's samples are not those of the calibration."""
    for name in schema.names:
        expected = calibration.get(name)
        if expected is None or not part.get(name):
            continue
        norms = behind_first(part[name])
        if norms.size < PROFILE_MIN_TOKENS:
            continue
        got = NormProfile.of(norms)
        if not expected.median / PROFILE_FACTOR <= got.median <= expected.median * PROFILE_FACTOR:
            told = f"a median token norm near {expected.median:.4g}", f"{got.median:.4g}"
        elif not expected.p90 / PROFILE_FACTOR <= got.p99 <= expected.largest * PROFILE_FACTOR:
            told = f"99% of the token norms near or below {expected.p99:.4g}", f"{got.p99:.4g}"
        else:
            continue
        message = f"expected {told[0]} as on the audit set, got {told[1]} over {norms.size} tokens"
        near = _nearest(got, calibration)
        if near not in (None, name):
            message += f", as `{near}` has"
        yield Problem(where=name, kind="norm_profile", message=message)


def _nearest(got: NormProfile, calibration: Mapping[str, NormProfile]) -> str | None:
    if got.median <= 0:
        return None
    distances = {
        name: abs(np.log(profile.median / got.median))
        for name, profile in calibration.items()
        if profile.median > 0
    }
    near = min(distances, key=lambda name: float(distances[name]), default=None)
    return near if near is not None and distances[near] < np.log(1.1) else None
