"""Figures that the tests measured, as a table behind their results."""

from typing import Any

import pytest

FIGURES: list[str] = []


@pytest.fixture
def figures() -> list[str]:
    """Lines to show when all is done."""
    return FIGURES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FIGURES:
        terminalreporter.section("measured")
        for line in FIGURES:
            terminalreporter.write_line(line)
