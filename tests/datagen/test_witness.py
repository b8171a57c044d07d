"""What an audit is held to beside its witness: the dtype's limits, and the nearest other boundary."""

import pytest

from datagen.checks.witness import agreement_problems
from datagen.engines.settings import EngineSettings
from schemas.calibration import TensorAgreement
from tests.builders import tiny_schema

N_TOKENS = 1000


def told(median: float, p99: float, distance: float | None, *, outliers: int = 0) -> list[str]:
    found = TensorAgreement(
        name="layer2",
        median=median,
        p99=p99,
        outliers=outliers,
        nearest=None if distance is None else "embed",
        distance=distance,
    )
    problems = agreement_problems(tiny_schema(), [found], N_TOKENS, EngineSettings(name="synthetic"))
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    ("median", "p99", "distance"),
    [(0.0, 0.0, 0.9), (0.0341, 0.0785, 0.194), (0.009, 0.05, 0.02), (0.01, 0.01, None)],
    ids=["equal", "vllm and transformers in bfloat16", "a near neighbour, nearer itself", "no neighbour"],
)
def test_what_rounding_moves_is_let_through(median: float, p99: float, distance: float | None) -> None:
    assert told(median, p99, distance) == []


@pytest.mark.parametrize(
    ("median", "p99", "distance", "words"),
    [
        (0.06, 0.07, 0.9, "at most 5.00%"),
        (0.01, 0.16, 0.9, "at most 15.00% by token, got 1.00% and 16.00%"),
        (0.011, 0.02, 0.02, "at most 1.00%"),
        (0.03, 0.04, 0.001, "looks like `embed` (0.10%)"),
    ],
    ids=["median", "p99", "half of the way to its neighbour", "the neighbour itself"],
)
def test_what_may_be_another_boundary_is_refused(
    median: float, p99: float, distance: float, words: str
) -> None:
    (message,) = told(median, p99, distance)
    assert words in message
