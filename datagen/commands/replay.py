"""`strata replay`: which wiring was this draft trained with, and is it what is declared?"""

import json
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from datagen.commands.check import read_ids
from datagen.printing import PlainConsole, printable
from datagen.progress import Passes
from datagen.replay.declaring import Said
from datagen.replay.picture import check_place, write_picture
from datagen.replay.replaying import Answer, Replay, replay
from datagen.replay.score import DEFINITIONS
from datagen.replay.screening import Findings
from datagen.replay.telling import Row, as_data, lines, rows
from datagen.replay.verdict_words import boundaries_of
from schemas.command import Parser, at_least_one, local_path
from schemas.consumers.declared import names

PROG = "strata replay"
TABLE_WIDTH = 132
SHOWN = 24
"""Rows of a table; JSON has them all."""
DESCRIPTION = """Run a draft on stored states under the declared wiring and every plausible other one, without
an inference engine, and say which of them its weights were trained with.

Exit codes: 0 what is declared may be right, 1 the weights were trained with another, or a server would feed
them another, 2 could not try. Fewer than 8 conversations are held against nobody."""


def command(arguments: Sequence[str]) -> int:
    """Say which wiring a draft was trained with, by its accuracy on stored states under each."""
    given = _parser().parse_args(list(arguments))
    said = Said(
        given.trainer, given.trainer_ids, given.trainer_wiring, given.card, given.server, given.server_wiring
    )
    asked = Replay(
        dataset=given.dataset,
        draft=given.draft,
        target=given.target,
        said=said,
        split=given.split,
        n_samples=given.samples,
        steps=given.steps,
        try_all="all" in given.wirings,
    )
    if given.picture is not None:
        check_place(given.picture)
    with Passes(sys.stderr) as watch:
        answer = replay(asked, watch)
    if given.json:
        print(json.dumps(as_data(answer)))  # noqa: T201
    else:
        _print(answer, PlainConsole(TABLE_WIDTH))
    if given.picture is not None:
        write_picture(given.picture, answer)
    return 0 if answer.verdict.is_well else 1


def read_wirings(text: str) -> tuple[str, ...]:
    """Read `declared`, `all` or both; raises `ArgumentTypeError` for anything else.

    >>> read_wirings("declared,all")
    ('declared', 'all')
    """
    words = tuple(piece.strip() for piece in text.split(","))
    if set(words) <= {"declared", "all"}:
        return words
    raise ArgumentTypeError(f"expected declared, all, or both, got {text[:80]!r}")


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument(
        "--dataset", required=True, metavar="ROOT/DATASET[@V]", help="stored states of the target"
    )
    parser.add_argument(
        "--draft",
        required=True,
        type=local_path,
        metavar="FOLDER",
        help="config.json beside the draft's weights",
    )
    parser.add_argument("--target", required=True, metavar="MODEL", help="the target's folder or hub id")
    parser.add_argument(
        "--samples", type=at_least_one, default=40, metavar="N", help="conversations, one sample of each (40)"
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="only samples of this split: one that was held out of training",
    )
    parser.add_argument(
        "--wirings",
        type=read_wirings,
        default=("declared", "all"),
        metavar="declared,all",
        help="`declared` alone is quick, and cannot say what it was trained with instead",
    )
    parser.add_argument(
        "--steps", type=at_least_one, default=3, metavar="K", help="depth of the teacher-forced chain (3)"
    )
    parser.add_argument(
        "--trainer",
        metavar="NAME[==VERSION]",
        help=f"what it is said to be trained with; one of {', '.join(names('trainer'))}",
    )
    parser.add_argument(
        "--trainer-ids", type=read_ids, metavar="ID,ID,...", help="the layer ids that the trainer was given"
    )
    parser.add_argument(
        "--trainer-wiring", type=local_path, metavar="FILE", help="a trainer of your own, in TOML"
    )
    parser.add_argument(
        "--card", type=local_path, metavar="FILE", help="the card, where it does not lie beside the weights"
    )
    parser.add_argument(
        "--server", metavar="NAME[==VERSION]", help=f"what will serve it; one of {', '.join(names('server'))}"
    )
    parser.add_argument(
        "--server-wiring", type=local_path, metavar="FILE", help="a server of your own, in TOML"
    )
    parser.add_argument("--picture", type=local_path, metavar="FILE.svg", help="draw accuracy by wiring")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _print(answer: Answer, console: Console) -> None:
    where = "audit set" if answer.on_audit else answer.reference
    console.print(_heading(where, answer.findings, "stored tensors"), markup=False)
    console.print(_table(rows(answer, answer.findings), answer.findings))
    if answer.boundaries is not None:
        console.print()
        having = boundaries_of(answer.boundaries, answer.n_layers)
        console.print(_heading("audit set", answer.boundaries, having), markup=False)
        console.print(_table(rows(answer, answer.boundaries), answer.boundaries))
    console.print()
    for line in lines(answer):
        console.print(printable(line), markup=False)


def _heading(where: str, findings: Findings, what: str) -> str:
    return f"{where}: {findings.n_tried:,} wirings of {what}, {findings.n_cases} conversations"


def _table(shown: Sequence[Row], findings: Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("wiring", overflow="fold")
    depth = len(findings.scores.chain)
    for title in (*DEFINITIONS, "mean", *(f"chain {k}" for k in range(2, depth + 1)), "loss", "behind"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in _some(shown):
        scores = row.scores
        cells = [f"{scores.by[name].pooled:.1%}" for name in DEFINITIONS]
        cells.append(f"{scores.learned.mean:.1%}")
        cells += [f"{tally.pooled:.1%}" for tally in scores.chain[1:]]
        cells.append("" if scores.loss is None else f"{scores.loss:.3f}")
        behind = row.behind
        cells.append(
            ""
            if behind is None
            else f"{100 * behind.value:.1f} ({100 * behind.low:.1f} to {100 * behind.high:.1f})"
        )
        style = "bold" if "best" in row.kinds else None
        table.add_row(printable(row.title).replace("[", "\\["), *cells, style=style)
    return table


def _some(shown: Sequence[Row]) -> list[Row]:
    """Return the rows for a table: the first of them, and all that are named, or a floor."""
    return [row for number, row in enumerate(shown) if number < SHOWN or row.kinds != ("other",)]
