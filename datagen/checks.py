"""Content checks where the states are made: is this what was asked for, and is it plausible?

Dtype, shape, width and finite values are the part writer's to refuse; here stand the checks that need the
prompt (token ids) or the run's calibration (each tensor's profile of token norms).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem
from schemas.records import QuarantineReason
from schemas.schema import Schema

PROFILE_FACTOR = 2.0
"""A part's median norm may depart from the calibration's by this factor; neighbouring layers differ by less,
so this catches another place, a lost norm or zeros, not an off-by-one (that is what the audit set is for)."""
PROFILE_MIN_TOKENS = 512


@dataclass(frozen=True)
class NormProfile:
    """Median and 99th percentile of the L2 norms of a tensor's rows: one sink token drowns a mean."""

    median: float
    p99: float

    @classmethod
    def of(cls, norms: NDArray[np.float32]) -> "NormProfile":
        """Return the profile of norms `[T]`, T at least 1."""
        median, p99 = np.quantile(norms.astype(np.float64), [0.5, 0.99])
        return cls(float(median), float(p99))


def capture_problem(prompt: Prompt, capture: Capture) -> tuple[QuarantineReason, Problem] | None:
    """Return why this capture cannot be the prompt's, or `None`."""
    asked = np.asarray(prompt.input_ids)
    got = np.asarray(capture.token_ids)
    if got.shape != asked.shape:
        message = f"expected the {asked.size} tokens that were asked for, got {got.size}"
        return "wrong_content", Problem(where="input_ids", kind="tokens", message=message)
    if not np.array_equal(got, asked):
        at = int(np.flatnonzero(got != asked)[0])
        message = f"expected token {int(asked[at])} at position {at}, got {int(got[at])}"
        return "wrong_content", Problem(where="input_ids", kind="tokens", message=message)
    for name, norms in capture.norms.items():
        bad = np.flatnonzero(~np.isfinite(norms))
        if bad.size:
            message = (
                f"expected finite values, got NaN or Inf in {bad.size} rows, first at token {int(bad[0])}"
            )
            return "non_finite", Problem(where=name, kind="finite", message=message)
    return None


def profile_problems(
    schema: Schema, part: Mapping[str, NDArray[np.float32]], calibration: Mapping[str, NormProfile]
) -> Iterator[Problem]:
    """Yield every tensor whose norms over a part are not those of the calibration."""
    for name in schema.names:
        norms, expected = part[name], calibration.get(name)
        if expected is None or norms.size < PROFILE_MIN_TOKENS:
            continue
        got = NormProfile.of(norms)
        if not expected.median / PROFILE_FACTOR <= got.median <= expected.median * PROFILE_FACTOR:
            yield Problem(
                where=name,
                kind="norm_profile",
                message=(
                    f"expected a median token norm near {expected.median:.4g} as on the audit set, "
                    f"got {got.median:.4g} over {norms.size} tokens"
                ),
            )
