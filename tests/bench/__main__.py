"""Run the measurements and print them as a table; a figure below its goal is marked and fails nothing."""

import argparse
import importlib
import json
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
                f"{row.value:,.3g}" if row.value < 1000 else f"{row.value:,.0f}",
                row.unit,
                "" if row.ratio is None else f"{row.ratio:.2f}",
                row.baseline or "",
                "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g}",
                verdict,
            )
    return table


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
                console.out(json.dumps({"measurement": name, **asdict(row), "holds": row.holds}))
    if not asked.json:
        console.print(table_of(rows))


if __name__ == "__main__":
    main()
