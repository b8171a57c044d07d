"""Run the measurements and print them as a table; a figure below its goal is marked and fails nothing."""

import argparse
import importlib
import json
import math
import pkgutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.row import Row


def measurements() -> dict[str, Callable[[], list[Row]]]:
    """Return every module of this folder that has a `run() -> list[Row]`, by name."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            run = getattr(importlib.import_module(f"tests.bench.{module.name}"), "run", None)
            if run is not None:
                found[module.name] = run
    return found


def table_of(rows: dict[str, list[Row]]) -> Table:
    """Return the rows as a table."""
    table = Table("measurement", "value", "unit", "ratio", "over", "goal", "")
    for name, measured in rows.items():
        for row in measured:
            verdict = {None: "", True: "holds", False: "BELOW" if not row.at_most else "ABOVE"}[row.holds]
            table.add_row(
                f"{name}: {row.name}",
                value_of(row),
                row.unit,
                "" if row.ratio is None else f"{row.ratio:.2f}",
                row.baseline or "",
                "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g}",
                verdict,
            )
    return table


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
    rows = {}
    for name in asked.names or known:
        rows[name] = known[name]()
        if asked.json:
            for row in rows[name]:
                console.out(json.dumps(as_data(name, row)))
    if not asked.json:
        console.print(table_of(rows))


if __name__ == "__main__":
    main()
