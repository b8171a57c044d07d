"""The README's table of engines says what the tests do: no more, and no less."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from datagen.engines.settings import EngineName
from tests.datagen.engines.tiny_models import CAUSAL, IMAGE_TEXT
from tests.support import ALL, IMAGES, NOT_RUN, ORACLE, REFUSED, ROWS, SMOLLM2, TESTED, VLLM, Row, table

ROOT = Path(__file__).parents[1]
CLAIMING = [row for row in ROWS if row.by]


def tree_of(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def texts_of(file: str) -> set[str]:
    """Every text that a test file holds, and the families whose tables it imports by name."""
    found: set[str] = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            found |= set(CAUSAL) if "CAUSAL" in names else set()
            found |= set(IMAGE_TEXT) if "IMAGE_TEXT" in names else set()
    return found


def test_the_readme_shows_this_table() -> None:
    assert table() in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", CLAIMING, ids=lambda row: f"{row.engine}-{'-'.join(row.architectures)}")
def test_what_is_called_tested_has_its_test(row: Row) -> None:
    functions = {node.name for node in ast.walk(tree_of(row.by)) if isinstance(node, ast.FunctionDef)}
    assert not row.test or row.test in functions
    if row.by != SMOLLM2:  # that file is of one model
        assert set(row.architectures) <= texts_of(row.by)


def test_what_has_no_test_is_not_called_tested() -> None:
    for row in ROWS:
        if not row.by or not row.architectures:
            assert not [cell for cell in row.cells if cell.startswith(TESTED)]


def test_every_engine_and_every_family_that_is_tried_has_its_row() -> None:
    assert {row.engine for row in ROWS} == set(get_args(EngineName)) - {"synthetic"}
    of = {row.by: set[str]() for row in CLAIMING}
    for row in CLAIMING:
        of[row.by] |= set(row.architectures)
    assert of[ORACLE] == set(CAUSAL)
    assert of[IMAGES] == set(IMAGE_TEXT)
    assigned = {
        target.id: node.value
        for node in tree_of(VLLM).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tried = {
        node.value
        for name in ("MODELS", "ROUTED")
        for node in ast.walk(assigned[name])
        if isinstance(node, ast.Constant)
    }
    assert of[VLLM] == tried


def test_an_engine_that_was_not_run_is_not_called_tested() -> None:
    """SGLang's tests are of parts of its code: the whole needs a GPU."""
    for row in ROWS:
        if row.engine == "sglang":
            assert row.cells != ALL
            assert {cell.partition(",")[0] for cell in row.cells} <= {NOT_RUN, REFUSED, "untested"}
