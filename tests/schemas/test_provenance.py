"""Differences that forbid adding to a dataset, one problem each, by name."""

import pytest

from schemas.provenance import Provenance, identity_differences
from tests.schemas.values import PROVENANCE, TARGET

CHANGES: dict[str, object] = {
    "engine": "synthetic",
    "engine_version": "5.17.0",
    "dtype": "float16",
    "mode": "capture",
    "max_tokens": 4096,
    "on_too_long": "quarantine",
    "min_trained_tokens": 2,
    "sampling": {"temperature": 0.8, "seed": 7, "stop": []},
    "engine_arguments": {},
}


def changed(*fields: str) -> Provenance:
    return Provenance.model_validate(PROVENANCE.model_dump() | {field: CHANGES[field] for field in fields})


def test_every_field_has_a_case() -> None:
    assert list(CHANGES) == list(Provenance.model_fields)


def test_equal_provenance_has_no_difference() -> None:
    assert changed().fatal_differences(PROVENANCE) == ()


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_that_differs_is_one_problem_with_both_values(field: str) -> None:
    mine = changed(field)
    (problem,) = mine.fatal_differences(PROVENANCE)
    assert (problem.where, problem.kind, problem.severity) == (field, "provenance", "error")
    ours, theirs = CHANGES[field], PROVENANCE.model_dump()[field]
    assert problem.message == f"expected {theirs!r} as in the dataset, got {ours!r}"


def test_arguments_are_not_held_against_a_record_that_has_none() -> None:
    before = PROVENANCE.model_copy(update={"engine_arguments": None})
    assert PROVENANCE.fatal_differences(before) == ()
    (problem,) = before.fatal_differences(PROVENANCE)
    assert problem.where == "engine_arguments"


def test_all_fields_that_differ_are_said_at_once() -> None:
    problems = changed(*CHANGES).fatal_differences(PROVENANCE)
    assert [problem.where for problem in problems] == list(CHANGES)


def test_identities_differ_by_dotted_path() -> None:
    theirs = TARGET.model_copy(
        update={
            "n_layers": 5,
            "quantisation": "fp8",
            "weights": TARGET.weights.model_copy(update={"sha256": "d" * 64}),
        }
    )
    problems = identity_differences("target", TARGET.identity(), theirs.identity())
    assert [(problem.where, problem.message) for problem in problems] == [
        ("target.n_layers", "expected 5, got 4"),
        ("target.quantisation", "expected 'fp8', got None"),
        ("target.weights.sha256", f"expected '{'d' * 64}', got '{'a' * 64}'"),
    ]
    assert identity_differences("target", TARGET.identity(), TARGET.identity()) == ()


@pytest.mark.parametrize(
    ("mine", "theirs", "message"),
    [
        pytest.param({"a": {"b": 1}}, {"a": None}, "expected None, got {'b': 1}", id="mapping-or-none"),
        pytest.param({"a": 1}, {}, "expected nothing, got 1", id="only-mine"),
        pytest.param({}, {"a": 1}, "expected 1, got nothing", id="only-theirs"),
        pytest.param({}, {"a": None}, "expected None, got nothing", id="none-is-not-absent"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, "expected [2, 1], got [1, 2]", id="order"),
    ],
)
def test_a_key_that_one_side_lacks_differs(
    mine: dict[str, object], theirs: dict[str, object], message: str
) -> None:
    (problem,) = identity_differences("x", mine, theirs)
    assert (problem.where, problem.message) == ("x.a", message)
