"""`strata verify`: does the dataset hold what its records say, to the last byte?"""

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from datagen.errors import ConfigError
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.verify import Report, verify
from schemas.command import Parser, at_least_one
from schemas.figures import human_bytes
from schemas.problem import Problem
from schemas.reference import DatasetReference, parse_reference

PROG = "strata verify"
RECAPTURE = "datagen.commands.recapture"
"""Loaded when a second capture is asked for: verifying bytes needs no model's libraries."""
NOT_CAPTURED = "no sample was captured again: the bytes come first"


class Recaptured(Protocol):
    """What a second capture found, ready to be told."""

    @property
    def ok(self) -> bool: ...

    def as_data(self) -> dict[str, object]: ...

    def in_words(self) -> str: ...


class _Recapture(Protocol):
    def capture_again(self, reference: DatasetReference, n_samples: int, model: str) -> Recaptured: ...


def command(arguments: Sequence[str]) -> int:
    """Check every invariant of a dataset on disk: records, digests, checksums, values."""
    parser = Parser(prog=PROG, description=command.__doc__)
    parser.add_argument("dataset", metavar="ROOT/DATASET[@VERSION]")
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="parts checked at once (default: the cores)"
    )
    parser.add_argument(
        "--audit", type=at_least_one, metavar="N", help="capture N samples again with --target, and compare"
    )
    parser.add_argument(
        "--target", metavar="MODEL", help="the dataset's target: a folder with its weights, or a hub id"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(list(arguments))
    if (given.audit is None) != (given.target is None):
        parser.error("argument --audit: expected --target MODEL with it, and the other way round")
    reference = parse_reference(given.dataset)
    report = run(reference, given.workers)
    recapture = _recapture() if given.target else None
    states = (
        recapture.capture_again(reference, given.audit, given.target) if recapture and report.ok else None
    )
    if given.json:
        audited = {"states": states.as_data() if states else None} if recapture else {}
        print(json.dumps(as_data(reference, report) | audited))  # noqa: T201
    else:
        print(in_words(reference, report))  # noqa: T201
        if recapture:
            print(states.in_words() if states else NOT_CAPTURED)  # noqa: T201
    return 0 if report.ok and (states is None or states.ok) else 1


def _recapture() -> _Recapture:
    try:
        return cast(_Recapture, import_module(RECAPTURE))
    except ModuleNotFoundError as error:
        message = f"expected the packages of the extra 'datagen', got no {error.name}"
        repair = "pip install 'strata-hidden-states[datagen]'"
        problem = Problem(where="--target", kind="extra", message=message, repair=repair)
        raise ConfigError("no sample can be captured here", [problem]) from error


def run(reference: DatasetReference, workers: int | None = None) -> Report:
    """Verify a dataset behind a progress bar (on a terminal)."""
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    columns = (
        TextColumn("verify"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("verify", total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return verify(dataset, dataset.number(reference.version), workers=workers, on_progress=show)


def as_data(reference: DatasetReference, report: Report) -> dict[str, object]:
    """Return the report as JSON types."""
    return {
        "dataset": str(reference),
        "ok": report.ok,
        "versions": report.n_versions,
        "parts": report.n_parts,
        "samples": report.n_samples,
        "tokens": report.n_tokens,
        "bytes": report.size_bytes,
        "problems": [problem.model_dump(mode="json") for problem in report.problems],
    }


def in_words(reference: DatasetReference, report: Report) -> str:
    """Return what a person reads: the verdict, then every problem and note."""
    checked = (
        f"{report.n_versions:,} versions, {report.n_parts:,} parts, {report.n_samples:,} samples, "
        f"{report.n_tokens:,} tokens, {human_bytes(report.size_bytes)}"
    )
    verdict = "holds" if report.ok else f"does not hold: {len(report.errors):,} problems"
    lines = [f"{reference} {verdict} ({checked})"]
    lines += [f"  {problem}" for problem in report.errors]
    lines += [f"  note: {problem}" for problem in report.notes]
    return "\n".join(lines)
