"""Trains a draft under each wiring, has `strata replay` say which, and ends with 1 where it is wrong.

Nobody tells it: every draft's config asks for the right wiring. Held-out conversations are replayed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from datagen.replay.candidates import Candidate, target_words
from deploy.demo.model import MODEL
from tests.replay_proof.drafts import PLACE, make_drafts
from tests.replay_proof.shape import faults_of, shape_of
from tests.replay_proof.wirings import WIRINGS, Wiring

STRATA = Path(sys.executable).with_name("strata")
SAMPLES = 24


class Told(NamedTuple):
    """What replay said of one draft, and whether it is right."""

    wiring: Wiring
    reported: float
    named: str
    accuracy: float
    beside: int
    """Other tensors, orders, shifts and targets that it calls too close."""
    outcome: str

    @property
    def is_right(self) -> bool:
        return self.outcome != "WRONG"


def main(arguments: Sequence[str]) -> int:
    """Train, ask, and print the table."""
    known = {wiring.name: wiring for wiring in WIRINGS}
    parser = argparse.ArgumentParser(prog="python -m tests.replay_proof", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], metavar="NAME", help=", ".join(known))
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"conversations ({SAMPLES})")
    given = parser.parse_args(list(arguments))
    console = Console(highlight=False, soft_wrap=True)
    asked = [known[name] for name in given.names or known]
    states, drafts = make_drafts(asked, console)
    told = []
    for wiring in asked:
        draft = drafts[wiring.name]
        data = ask(states.held_out, draft.folder, PLACE / f"replay-{wiring.name}.json", given.samples)
        told.append(judge(wiring, draft.reported, data))
        console.print(f"{wiring.name}: {told[-1].outcome}\n  " + "\n  ".join(data["verdict"]), markup=False)
    console.print(table_of(told))
    wrong = [f"{one.wiring.name}: {one.outcome}" for one in told if not one.is_right]
    if "right" in given.names or not given.names:
        shape = shape_of(states.held_out, drafts["right"].folder, given.samples)
        for name, score in shape.items():
            console.print(f"  {name:<44} {score:.3f}")
        wrong += faults_of(shape)
    for line in wrong:
        console.print(line, markup=False)
    return 1 if wrong else 0


def ask(dataset: str, draft: Path, file: Path, samples: int) -> Any:
    """Return what `strata replay --json` says, which is kept in `file` to be read."""
    words = ["--dataset", dataset, "--draft", draft, "--target", MODEL, "--samples", samples, "--json"]
    ran = subprocess.run(
        [STRATA, "replay", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    if ran.returncode not in (0, 1):
        raise SystemExit(f"error: strata replay could not try {draft}: exit status {ran.returncode}")
    file.write_bytes(ran.stdout)
    return json.loads(ran.stdout)


def judge(wiring: Wiring, reported: float, data: Any) -> Told:
    """Hold what was said against what was done; every draft's config declares the right wiring."""
    wanted = key_of(wiring.trained)
    best, close = _key(data["trained_with"]), [_key(one) for one in data["too_close_to_call"]]
    others = dict.fromkeys(one for one in close if one != best)
    if wiring.name == "right" and data["is_as_declared"] is False:
        outcome = "WRONG"
    elif best == wanted:
        outcome = "too close to call, said so" if others else "named"
    elif wanted in others and any(_is_doubt(line) for line in data["verdict"]):
        outcome = "too close to call, said so"
    else:
        outcome = "WRONG"
    accuracy = data["stored"]["rows"][0]["accuracy"]["speculators"]["pooled"]["value"]
    return Told(wiring, reported, data["trained_with"]["words"], accuracy, len(others), outcome)


def _is_doubt(line: str) -> bool:
    return "too close to call" in line and "off-by-one" not in line


def key_of(candidate: Candidate) -> tuple[tuple[str, ...], int, str]:
    """Return what of a candidate is its wiring: tensors in order, shift and target, not its norm flags."""
    return candidate.inputs.fc, candidate.inputs.moved, target_words(candidate.target)


def _key(data: Any) -> tuple[tuple[str, ...], int, str]:
    return tuple(data["fc"]), data["moved"], data["target"]


def table_of(told: Sequence[Told]) -> Table:
    """Return a row a draft."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("trained", "named by replay", "trainer's own", "replayed", "too close", ""):
        table.add_column(title, overflow="fold")
    for one in told:
        cells = f"{one.reported:.1%}", f"{one.accuracy:.1%}", str(one.beside)
        table.add_row(one.wiring.name, one.named, *cells, one.outcome)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
