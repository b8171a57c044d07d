"""Run the measurements and print each as a table; a figure below its goal is marked and fails nothing."""

import argparse
import importlib
import json
import math
import pkgutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.table import Table
from rich.text import Text

from tests.bench.row import Row

_ANY_WIDTH = 1000
"""Of a log: no row is cut there, and a table is only as wide as it must be."""


def measurements() -> dict[str, Callable[[], list[Row]]]:
    """Return every module of this folder that has a `run() -> list[Row]`, by name."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            run = getattr(importlib.import_module(f"tests.bench.{module.name}"), "run", None)
            if run is not None:
                found[module.name] = run
    return found


def show(console: Console, name: str, rows: list[Row]) -> None:
    """Print a measurement, one line a row: in a log as wide as it must be, on a terminal as wide as that is.

    Where a terminal is too narrow, what a row is over goes first, then the ends of the names.
    """
    measured = [row for row in rows if not math.isnan(row.value)]
    if measured:
        if not console.is_terminal:
            console = Console(file=console.file, width=_ANY_WIDTH)
        console.print(_fitting(console, name, measured))
    for row in rows:
        if math.isnan(row.value):
            console.print(f"{name}: {row.name}", soft_wrap=True, highlight=False, markup=False)
    console.print()


def _fitting(console: Console, name: str, rows: list[Row]) -> Table:
    whole = table_of(name, rows)
    if console.measure(whole, options=_any_width(console)).maximum <= console.width:
        return whole
    narrow = table_of(name, rows, with_over=False)
    lacking = console.measure(narrow, options=_any_width(console)).maximum - console.width
    if lacking > 0:
        narrow.columns[0].max_width = max(max(len(row.name) for row in rows) - lacking, 1)
    return narrow


def _any_width(console: Console) -> ConsoleOptions:
    return console.options.update(width=_ANY_WIDTH)


def table_of(name: str, rows: list[Row], *, with_over: bool = True) -> Table:
    """Return the rows of one measurement as a table that it is the title of."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(name, no_wrap=True, overflow="ellipsis")
    for title in ("value", "unit", "ratio", *(["over"] if with_over else []), "goal", ""):
        justify: JustifyMethod = "right" if title in ("value", "ratio", "goal") else "left"
        table.add_column(title, no_wrap=True, justify=justify)
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g}"
        over = [row.baseline or ""] if with_over else []
        cells = (row.name, value_of(row), row.unit, ratio, *over, goal, verdict_of(row))
        table.add_row(*map(Text, cells))
    return table


def verdict_of(row: Row) -> str:
    """Return whether a row reaches its goal, nothing for one without."""
    if row.holds is None:
        return ""
    return "holds" if row.holds else "ABOVE" if row.at_most else "BELOW"


def value_of(row: Row) -> str:
    """Return a row's value with three digits, nothing where none was measured."""
    if math.isnan(row.value):
        return ""
    return f"{row.value:,.3g}" if row.value < 1000 else f"{row.value:,.0f}"


def as_data(name: str, row: Row) -> dict[str, object]:
    """Return a row as JSON types; a value that was not measured is null."""
    value = None if math.isnan(row.value) else row.value
    return {"measurement": name, **asdict(row), "value": value, "holds": row.holds}


def main() -> None:
    """Run what was asked for, or all."""
    known = measurements()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", action="store_true", help="print a line of JSON a row")
    asked = parser.parse_args()
    console = Console()
    for name in asked.names or known:
        rows = known[name]()
        if asked.json:
            for row in rows:
                console.out(json.dumps(as_data(name, row)))
        else:
            show(console, name, rows)


if __name__ == "__main__":
    main()
