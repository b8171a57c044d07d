"""A problem reads *where: expected X, got Y (repair)* and keeps its parts."""

import pytest
from pydantic import ValidationError

from schemas.problem import Problem, listed

DTYPE = Problem(where="layer3", kind="dtype", message="expected bfloat16, got float32")


def test_a_problem_reads_as_a_line_with_its_repair_last() -> None:
    assert str(DTYPE) == "layer3: expected bfloat16, got float32"
    repaired = DTYPE.model_copy(update={"repair": "set dtype"})
    assert str(repaired) == "layer3: expected bfloat16, got float32 (set dtype)"


def test_problems_are_listed_a_line_each_in_their_order() -> None:
    other = Problem(where="embed", kind="missing", message="expected it, got none")
    assert listed([DTYPE, other]) == f"\n  {DTYPE}\n  {other}"
    assert listed([]) == ""


def test_a_problem_is_an_error_unless_said_otherwise_and_never_changes() -> None:
    assert DTYPE.severity == "error"
    with pytest.raises(ValidationError, match="frozen"):
        DTYPE.message = "other"  # type: ignore[misc]


def test_a_problem_survives_json() -> None:
    assert Problem.model_validate_json(DTYPE.model_dump_json()) == DTYPE
