"""Trains three times, shows the losses step by step, and ends with 1 where any number differs."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from datagen.commands.export import run as run_export
from datagen.export.exporting import Asked, plan_export
from deploy.demo.incident.environment import make_environment
from deploy.demo.live.service import serving
from deploy.demo.live.training import Ran, Way, differences, train
from deploy.demo.registry import DATA, DemoError
from schemas.errors import StrataError

DEMO = DATA / "demo"
PLACE = DATA / "live"
FC = ("layer2", "layer15", "layer27")


def main(arguments: Sequence[str]) -> int:
    """Train from files, live from the dataset, and live over HTTP; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.live", description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="of training (24)")
    steps = parser.parse_args(list(arguments)).steps
    console = Console(highlight=False, soft_wrap=True)
    if not DEMO.is_dir():
        raise DemoError(f"{DEMO}: expected the demo's dataset, found none; `make demo` makes it")
    environment = make_environment()
    plan = plan_export(Asked(str(DEMO), "speculators", PLACE / "exported", FC))
    files = run_export(plan, workers=2).path.resolve()
    ratio = (plan.n_train + 0.5) / len(plan.rows)
    ids = map(str, plan.source.wiring.boundaries)
    told = ("--data-path", str(files), "--train-data-ratio", str(ratio), "--on-missing", "raise")
    live = ("--fc", ",".join(FC), "--prepared")
    with serving(DATA) as url:
        ways = [
            Way("files", "files", (), (*told, "--target-layer-ids", *ids)),
            Way("live, direct", "live", ("--data", str(DEMO), *live, str(PLACE / "prepared"))),
            Way(
                "live, HTTP",
                "live",
                ("--url", url, "--dataset", DEMO.name, *live, str(PLACE / "prepared-http")),
                workers=2,
            ),
        ]
        runs = {}
        for number, way in enumerate(ways):
            with Console(file=sys.stderr).status(f"{way.name}: training {steps} steps"):
                runs[way.name] = train(way, PLACE / f"run-{number}", steps, environment)
    console.print(table_of(runs))
    found = differences(list(runs.values()))
    for line in found:
        console.print(line, markup=False)
    n_numbers = len(next(iter(runs.values())).metrics)
    console.print(
        f"{len(found)} entries differ"
        if found
        else f"all {n_numbers} entries that it logged are the same numbers"
    )
    return 1 if found or not n_numbers else 0


def table_of(runs: dict[str, Ran]) -> Table:
    """Return the loss of each step, a column a run; every digit that there is."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("step", justify="right")
    for name, ran in runs.items():
        table.add_column(f"{name} ({ran.seconds:.0f} s)", justify="right")
    table.add_column("")
    for step, losses in enumerate(zip(*(ran.losses for ran in runs.values()), strict=False)):
        same = "the same" if len(set(losses)) == 1 else "DIFFERENT"
        table.add_row(str(step), *map(repr, losses), same)
    return table


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (DemoError, StrataError) as error:
        sys.exit(f"error: {error}")
