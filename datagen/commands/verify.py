"""`strata verify`: does the dataset hold what its records say, to the last byte?"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from datagen.replay.stored_states import StatesReport, open_target, verify_states
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.verify import Report, verify
from schemas.command import Parser, at_least_one
from schemas.figures import human_bytes
from schemas.reference import DatasetReference, parse_reference

PROG = "strata verify"


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
    states = capture_again(reference, given.audit, given.target) if given.target and report.ok else None
    if given.json:
        audited = {} if given.target is None else {"states": states_data(states)}
        print(json.dumps(as_data(reference, report) | audited))  # noqa: T201
    else:
        print(in_words(reference, report))  # noqa: T201
        if given.target is not None:
            print(states_in_words(states))  # noqa: T201
    return 0 if report.ok and (states is None or states.ok) else 1


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


def capture_again(reference: DatasetReference, n_samples: int, model: str) -> StatesReport:
    """Capture some samples of a dataset again behind a progress bar (on a terminal), and compare."""
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    snapshot = dataset.snapshot(reference.version)
    source = open_target(snapshot.schema, model)
    columns = (TextColumn("capture again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("capture", total=min(n_samples, len(snapshot)))
            return verify_states(
                snapshot, n_samples, source, lambda done: progress.update(task, completed=done)
            )
    finally:
        source.engine.close()


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


def states_data(states: StatesReport | None) -> dict[str, object] | None:
    """Return a second capture as JSON types; `None` where the bytes did not hold, so that none was made."""
    if states is None:
        return None
    return {
        "ok": states.ok,
        "samples": states.n_samples,
        "tokens": states.n_tokens,
        "held_against": states.identified.source,
        "head": None if states.head is None else asdict(states.head),
        "tensors": [asdict(line) for line in states.lines],
        "problems": [problem.model_dump(mode="json") for problem in states.problems],
    }


def states_in_words(states: StatesReport | None) -> str:
    """Return what a person reads of a second capture: the verdict, a line a tensor, problems and notes."""
    if states is None:
        return "no sample was captured again: the bytes come first"
    errors = [problem for problem in states.problems if problem.severity == "error"]
    verdict = f"not what they are called: {len(errors):,} problems" if errors else "what they are called"
    captured = f"{states.n_samples:,} samples ({states.n_tokens:,} tokens) captured again"
    lines = [f"the states are {verdict} ({captured} by {states.identified.source})"]
    for line in states.lines:
        near = "" if line.rival is None else f"; the nearest other, {line.rival}: {line.rival_median:.2%}"
        lines.append(f"  {line.name}: {line.median:.2%} off, p99 {line.p99:.2%} (worst sample){near}")
    if states.head is not None and states.head.share is not None:
        free = states.head.positions - states.head.tied
        lines.append(
            f"  the head on `final` chose as the target on {states.head.agreeing:,} of {free:,} positions "
            f"({states.head.share:.2%}; {states.head.tied:,} ties left out)"
        )
    lines += [f"  {problem}" for problem in errors]
    lines += [f"  note: {problem}" for problem in states.problems if problem.severity == "note"]
    return "\n".join(lines)
