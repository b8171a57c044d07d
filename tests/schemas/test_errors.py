"""An error carries every problem, into its text and across processes."""

import pickle

import pytest

from schemas.errors import DatasetNameError, RecordError, SchemaError, StrataError
from schemas.problem import Problem

PROBLEMS = [
    Problem(where="embed", kind="missing", message="expected it, got none"),
    Problem(where="final", kind="dtype", message="expected bfloat16, got float32", repair="set dtype"),
]
EVERY = [StrataError, RecordError, SchemaError, DatasetNameError]


@pytest.mark.parametrize("kind", EVERY)
def test_the_text_is_the_headline_and_every_problem(kind: type[StrataError]) -> None:
    assert str(kind("nothing fits", PROBLEMS)).splitlines() == [
        "nothing fits",
        "  embed: expected it, got none",
        "  final: expected bfloat16, got float32 (set dtype)",
    ]
    assert str(kind("nothing fits")) == "nothing fits"


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_crosses_processes_whole(kind: type[StrataError]) -> None:
    error = pickle.loads(pickle.dumps(kind("nothing fits", PROBLEMS)))
    assert type(error) is kind
    assert (error.headline, error.problems, str(error)) == (
        "nothing fits",
        tuple(PROBLEMS),
        str(kind("nothing fits", PROBLEMS)),
    )


@pytest.mark.parametrize(
    ("kind", "code"), [(StrataError, 2), (RecordError, 2), (DatasetNameError, 2), (SchemaError, 1)]
)
def test_the_exit_code_tells_found_problems_from_could_not_try(kind: type[StrataError], code: int) -> None:
    assert kind("x").exit_code == code
