"""Tells the incident from the first byte to the verdict; every step is skipped where it is done already.

`--steps` makes it longer or shorter.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from datagen.commands.check import SLOT
from datagen.errors import ExportError
from datagen.export.exporting import Asked, plan_export
from datagen.wiring.checking import Asked as AskedCheck
from datagen.wiring.checking import Report, check
from deploy.demo.incident.exporting import MEANT, SPLITS, export_right
from deploy.demo.incident.picture import Bar, draw
from deploy.demo.incident.positional import SAVED, write_positional
from deploy.demo.incident.replayed import SERVER, Extent, Replayed, replay_draft
from deploy.demo.incident.states import States, make_states
from deploy.demo.incident.training import Course, Trained, train_both
from deploy.demo.registry import DATA, DemoError
from schemas.card import CARD_FILE
from schemas.errors import StrataError

PLACE = DATA / "incident"
PICTURE = PLACE / "incident.svg"
AS_THEN = Path(__file__).with_name("as_then.toml")


def main(arguments: Sequence[str]) -> None:
    """Tell it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.incident", description=__doc__)
    parser.add_argument("--steps", type=int, default=64, help="of training; an epoch has some 130 (64)")
    parser.add_argument("--samples", type=int, default=40, help="conversations to replay (40)")
    parser.add_argument("--declared", action="store_true", help="replay the declared wirings alone: quicker")
    given = parser.parse_args(list(arguments))
    console = Console(highlight=False, soft_wrap=True)
    states = make_states()
    right, then = PLACE / "right", PLACE / "as-then"
    ratio = export_right(states, right)
    console.print(f"right    {right}: input {', '.join(MEANT)}; target final; names checked")
    refuse(console, states, then)
    write_positional(states.dataset, right, then)
    course = Course(steps=given.steps, train_ratio=ratio)
    drafts = train_both({"right": right, "as then": then}, PLACE, course)
    shutil.copy2(right / CARD_FILE, drafts["right"].folder / CARD_FILE)
    checks = {
        "right": check_draft(states, drafts["right"], None),
        "as then": check_draft(states, drafts["as then"], AS_THEN),
    }
    extent = Extent(given.samples, try_all=not given.declared)
    replays = {
        name: replay_draft(states.held_out, draft.folder, wiring, PLACE / f"replay-{file}.svg", extent)
        for (name, draft), wiring, file in zip(
            drafts.items(), (None, AS_THEN), (right.name, then.name), strict=True
        )
    }
    tell(console, drafts, checks, replays)


def refuse(console: Console, states: States, then: Path) -> None:
    """Ask the export for the incident's tensors, and show what it says."""
    *fc, target = SAVED
    try:
        plan_export(Asked(states.dataset, "speculators", then, tuple(fc), target, SPLITS))
    except ExportError as error:
        console.print(f"as then  {then}: input {', '.join(fc)}; target {target}. strata export refuses:")
        console.print(f"  {error}", markup=False)
        console.print("  so it is written as the incident's script did: a list, without names")
        return
    raise DemoError("expected strata export to refuse the incident's tensors, but it did not")


def check_draft(states: States, draft: Trained, wiring: Path | None) -> Report:
    """Return what `strata check` says of a draft, its dataset and the server that is to run it."""
    return check(
        AskedCheck(
            dataset=states.dataset,
            trainer_wiring=wiring,
            card=None if wiring else draft.folder / CARD_FILE,
            server=SERVER,
            draft_config=draft.folder,
        )
    )


def tell(
    console: Console,
    drafts: dict[str, Trained],
    checks: dict[str, Report],
    replays: dict[str, Replayed],
) -> None:
    """Print the table and the verdicts, and draw the picture."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("draft", "trainer's own", "as trained", "true target", "served", "check"):
        table.add_column(title, justify="left" if title in ("draft", "check") else "right")
    bars: list[Bar] = []
    for name, draft in drafts.items():
        replayed, errors = replays[name], [one for one in checks[name].errors if one.kind != SLOT]
        cells = [
            draft.reported,
            *(part.value for part in (replayed.as_trained, replayed.truly, replayed.served)),
        ]
        said = f"{len(errors)} problems" if errors else "they mean the same"
        table.add_row(name, *(f"{cell:.1%}" for cell in cells), said)
        bars.append(
            Bar(name, f"what its trainer reported ({draft.seconds:.0f} s of training)", draft.reported, None)
        )
        bars.append(Bar(name, "replayed as it was trained", replayed.as_trained.value, replayed.as_trained))
        bars.append(Bar(name, "replayed, the target's own next token", replayed.truly.value, replayed.truly))
        bars.append(Bar(name, f"replayed as {SERVER} would serve it", replayed.served.value, replayed.served))
    console.print()
    console.print(table)
    for name, replayed in replays.items():
        console.print()
        console.print(f"{name}: " + "; ".join(replayed.verdict), markup=False)
    for problem in (one for one in checks["as then"].errors if one.kind != SLOT):
        console.print(f"  check: {problem.where}: {problem.message}", markup=False)
    PICTURE.write_text(draw(bars), encoding="utf-8")
    console.print(f"\npicture  {PICTURE}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (DemoError, StrataError) as error:
        sys.exit(f"error: {error}")
