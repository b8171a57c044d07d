"""`strata verify --audit N --target MODEL`: what a second capture says of the stored states.

A module of its own, since it needs the libraries of a model: `verify` loads it when it is asked for.
"""

import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datagen.replay.stored_states import StatesReport, open_target, verify_states
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from schemas.reference import DatasetReference


@dataclass(frozen=True)
class Recaptured:
    """A second capture, ready to be told."""

    report: StatesReport

    @property
    def ok(self) -> bool:
        return self.report.ok

    def as_data(self) -> dict[str, object]:
        """Return it as JSON types."""
        return states_data(self.report)

    def in_words(self) -> str:
        """Return what a person reads of it."""
        return states_in_words(self.report)


def capture_again(reference: DatasetReference, n_samples: int, model: str) -> Recaptured:
    """Capture some samples of a dataset again behind a progress bar (on a terminal), and compare."""
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    snapshot = dataset.snapshot(reference.version)
    source = open_target(snapshot.schema, model)
    columns = (TextColumn("capture again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("capture", total=min(n_samples, len(snapshot)))
            report = verify_states(
                snapshot, n_samples, source, lambda done: progress.update(task, completed=done)
            )
        return Recaptured(report)
    finally:
        source.engine.close()


def states_data(states: StatesReport) -> dict[str, object]:
    """Return a second capture as JSON types."""
    return {
        "ok": states.ok,
        "samples": states.n_samples,
        "tokens": states.n_tokens,
        "held_against": states.identified.source,
        "head": None if states.head is None else asdict(states.head),
        "tensors": [asdict(line) for line in states.lines],
        "problems": [problem.model_dump(mode="json") for problem in states.problems],
    }


def states_in_words(states: StatesReport) -> str:
    """Return what a person reads of a second capture: the verdict, a line a tensor, problems and notes."""
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
