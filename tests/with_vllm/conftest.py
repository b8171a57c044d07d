"""Figures that the tests measured, as a table behind their results."""

from collections.abc import Iterator
from typing import Any

import pytest

FIGURES: list[str] = []


@pytest.fixture
def figures() -> Iterator[list[str]]:
    """Lines to show when all is done."""
    yield FIGURES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FIGURES:
        terminalreporter.section("measured")
        for line in FIGURES:
            terminalreporter.write_line(line)
