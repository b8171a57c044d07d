"""What an audit is held to: the limits of its dtype, the nearest other boundary; and who bears witness."""

import numpy as np
import pytest

from datagen.checks import witness
from datagen.checks.witness import agreement_problems, agreements, witness_of
from datagen.engines.base import Engine
from datagen.engines.errors import OpeningError
from datagen.engines.settings import EngineSettings, SyntheticSettings
from datagen.engines.synthetic import open_engine
from datagen.engines.synthetic import read_target as synthetic_target
from schemas.calibration import TensorAgreement
from schemas.problem import Problem
from schemas.schema import Schema
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


VLLM = EngineSettings(name="vllm", model="a-model")


@pytest.fixture
def engine() -> Engine:
    schema = tiny_schema()
    own = SyntheticSettings(
        n_layers=schema.target.n_layers,
        hidden_size=schema.target.hidden_size,
        vocab_size=schema.target.vocab_size,
    )
    settings = EngineSettings(name="synthetic", synthetic=own)
    return open_engine(settings, Schema.declare(synthetic_target(settings), ("layer2", "final"), "bfloat16"))


@pytest.fixture
def unprovable(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would fit, and cannot prove the model."""

    def refuse(settings: EngineSettings, schema: Schema) -> Engine:
        problem = Problem(where="model.layers", kind="structure", message="expected 30 layers, got 29")
        raise OpeningError("the structure of the model cannot be proven", [problem])

    monkeypatch.setattr(witness, "why_no_reference", lambda settings, target: None)
    monkeypatch.setattr(witness, "open_engine", refuse)


@pytest.mark.usefixtures("unprovable")
def test_auto_takes_the_second_pass_where_transformers_cannot_run_and_says_why(engine: Engine) -> None:
    found = witness_of(engine, VLLM, "auto")
    assert found is not None
    assert not found.is_another
    assert found.engine is engine
    assert found.said == (
        "synthetic itself, in a second pass (transformers bears none: the structure of the model cannot be "
        "proven; model.layers: expected 30 layers, got 29)"
    )


@pytest.mark.usefixtures("unprovable")
def test_transformers_asked_for_by_name_must_run(engine: Engine) -> None:
    with pytest.raises(OpeningError, match="cannot be proven"):
        witness_of(engine, VLLM, "hf")


def test_a_place_that_only_the_witness_has_is_named() -> None:
    """What an engine gives for `layer2` is `layer3`, which it does not give at all."""
    rng = np.random.default_rng(0)
    theirs = {name: rng.normal(size=(12, 8)).astype(np.float32) for name in ("layer2", "layer3", "final")}
    schema = tiny_schema()
    given = Schema.declare(schema.target, ("layer2", "final"), "float32")
    pairs = [({"layer2": theirs["layer3"], "final": theirs["final"]}, theirs)]
    found = agreements(given, pairs)
    assert [one.name for one in found] == ["layer2", "final"]
    (problem,) = agreement_problems(given, found, 12, EngineSettings(name="synthetic"))
    assert problem.where == "layer2"
    assert "it looks like `layer3` (0.00%)" in problem.message
