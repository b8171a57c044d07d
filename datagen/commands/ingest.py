"""`strata ingest`: files that another library wrote become a dataset, every tensor by name."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

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

from datagen.adapters.imports.format import ALL_TRAINED
from datagen.ingest.asked import PROVEN_FILES, Asked
from datagen.ingest.facts import Refusal
from datagen.ingest.formats import FORMATS
from datagen.ingest.labels import as_said
from datagen.ingest.plan import IngestPlan, plan_ingest
from datagen.ingest.proof import SlotProof
from datagen.ingest.writing import Ingested, check_room, write
from datagen.printing import printable
from datagen.stopping import Stopping
from schemas.command import Parser, at_least_one, local_path, names
from schemas.figures import human_bytes, human_seconds
from schemas.schema import DTYPES

PROG = "strata ingest"
DESCRIPTION = """Bring hidden states that another library wrote into a dataset, every tensor by name.

Nothing in the files is run. Which tensor each slot is must be said (--labels), and is held against the
target's own states of the same tokens before a byte is written. What cannot be taken is left out by name,
with its reason. The same command goes on where it was stopped. Exit codes: 0 all is in, 1 something was
refused or left out, 2 could not try."""
_TOLD = 12


def command(arguments: Sequence[str]) -> int:
    """Bring hidden states that another library wrote into a dataset, every tensor by name."""
    given = _parser().parse_intermixed_args(list(arguments))
    asked = Asked(
        format=given.format,
        files=tuple(given.files),
        dataset=given.dataset,
        labels=given.labels,
        target=given.target,
        proven=not given.unproven,
        masks=given.masks,
        dequantise=given.dequantise,
        padding=given.padding,
        first_token=given.first_token,
        device=given.device,
        prove=given.prove,
    )
    workers = given.workers or len(os.sched_getaffinity(0))
    with _steps() as on_step:
        plan = plan_ingest(asked, workers, on_step=on_step)
    if given.dry_run:
        check_room(plan)
    done = None if given.dry_run or plan.nothing_to_do else run(plan, workers)
    if given.json:
        print(json.dumps(as_data(plan, done)))  # noqa: T201
    else:
        print(printable("\n".join(in_words(plan, done))))  # noqa: T201
    refused = plan.looked.refused if done is None else done.refused
    return int(bool(refused) or (done is not None and done.outcome != "complete"))


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument("files", nargs="+", type=local_path, metavar="FILE", help="files, or folders of them")
    parser.add_argument("--format", required=True, metavar="NAME", help=f"one of {', '.join(FORMATS)}")
    parser.add_argument(
        "--dataset", required=True, metavar="ROOT/DATASET", help="made where it is not there, else added to"
    )
    parser.add_argument(
        "--labels",
        type=names,
        metavar="NAME,NAME,...",
        help="the slots' tensors in their order, the draft's input first, as layer2,layer15,layer27,final "
        "(default: what the card of an export beside them says, or the files themselves)",
    )
    parser.add_argument(
        "--target", metavar="MODEL", help="the model: a folder with config.json and safetensors, or a hub id"
    )
    parser.add_argument(
        "--unproven", action="store_true", help="take the labels on trust; the dataset says so from then on"
    )
    parser.add_argument(
        "--prove",
        type=at_least_one,
        default=PROVEN_FILES,
        metavar="N",
        help=f"files that are held against the target, evenly spread (default: {PROVEN_FILES})",
    )
    parser.add_argument(
        "--masks",
        type=_masks,
        metavar="DIR|ones",
        help="the dataset prepared for the trainer, where loss masks lie apart (default: beside the states); "
        "`ones` trains on every token of files without masks",
    )
    parser.add_argument(
        "--dequantise", choices=DTYPES, help="what states of 8 bits become (default: they are refused)"
    )
    parser.add_argument(
        "--padding",
        choices=("tell", "keep", "cut"),
        default="tell",
        help="SpecForge's zeros at the end: told from text where they can be (default), kept, or cut",
    )
    parser.add_argument(
        "--first-token",
        type=int,
        metavar="ID",
        help="the token that every sample begins with, which caches of Automodel drop (ours keep it beside)",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="parts written at once (default: one a core)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and what left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _masks(text: str) -> Path | Literal["ones"]:
    return "ones" if text == ALL_TRAINED else Path(text)


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show the looks and the proof behind a bar (on a terminal)."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = {name: progress.add_task(name, total=None, visible=False) for name in ("look", "prove")}
        yield lambda name, done, total: progress.update(
            tasks[name], completed=done, total=total, visible=True
        )


def run(plan: IngestPlan, workers: int) -> Ingested:
    """Write what was planned behind a progress bar; Ctrl-C closes the parts in hand and commits them."""
    columns = (
        TextColumn("ingest"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with (
        Stopping() as stopping,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("ingest", total=plan.payload_bytes)
        return write(
            plan, workers, stopping, on_progress=lambda done, _all: progress.update(task, completed=done)
        )


def as_data(plan: IngestPlan, done: Ingested | None) -> dict[str, object]:
    """Return the plan, and what was written, as JSON types."""
    refused = plan.looked.refused if done is None else done.refused
    return {
        "dataset": str(plan.opened.reference),
        "format": plan.asked.format,
        "target": plan.schema.target.model_dump(mode="json"),
        "labels": dict(zip([slot.name for slot in plan.slots], plan.labels, strict=True)),
        "labels_said_by": plan.said_by,
        "dtype": plan.slots[0].dtype,
        "proof": plan.proof.as_data() if plan.proof else None,
        "files": len(plan.opened.files.samples),
        "planned_samples": len(plan.looked.fresh),
        "planned_tokens": plan.looked.n_tokens,
        "planned_bytes": plan.payload_bytes,
        "there": plan.looked.n_there,
        "again": plan.looked.n_again,
        "refused": [_refused_data(one) for one in refused],
        "notes": [problem.model_dump(mode="json") for problem in plan.notes],
        "written": None
        if done is None
        else {
            "run_id": done.run_id,
            "outcome": done.outcome,
            "version": done.version,
            "samples": done.n_samples,
            "tokens": done.n_tokens,
            "bytes": done.size_bytes,
            "quarantined": done.quarantined,
            "final_norm": done.final_norm,
            "seconds": done.seconds,
        },
    }


def _refused_data(refusal: Refusal) -> dict[str, object]:
    return {
        "sample": refusal.listed.name,
        "reason": refusal.reason,
        "problems": [problem.model_dump(mode="json") for problem in refusal.problems],
    }


def in_words(plan: IngestPlan, done: Ingested | None) -> Iterator[str]:
    """Yield what a person reads: the slots with their names and proof, what came in, and what did not."""
    n_files = len(plan.opened.files.samples)
    yield f"files    {n_files:,} samples of {plan.asked.format}, of {plan.schema.target.model_id}"
    yield from _slots_in_words(plan)
    if plan.looked.n_there or plan.looked.n_again:
        yield f"there    {plan.looked.n_there:,} in the dataset already, {plan.looked.n_again:,} came twice"
    if plan.nothing_to_do:
        yield f"done     {plan.opened.reference}: nothing new"
    elif done is None:
        size = human_bytes(plan.payload_bytes)
        planned = f"{len(plan.looked.fresh):,} samples, {plan.looked.n_tokens:,} tokens, {size} of states"
        yield f"size     {planned}; nothing is written, and NaN is only looked for when it is"
    else:
        yield _written_in_words(plan, done)
        yield f"norm     {done.final_norm}"
    refused = plan.looked.refused if done is None else done.refused
    if refused:
        reasons = Counter(one.reason for one in refused)
        told = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))
        yield f"left out {len(refused):,} ({told})"
        yield from _some([f"{one.listed.name}: {'; '.join(map(str, one.problems))}" for one in refused])
    for note in plan.notes:
        if note.severity == "note":
            yield f"note     {note}"


def _written_in_words(plan: IngestPlan, done: Ingested) -> str:
    at = f"{plan.opened.reference}@{done.version}" if done.version else str(plan.opened.reference)
    if done.outcome != "complete":
        left = len(plan.looked.fresh) - done.n_samples
        return f"stopped  {at}: {done.n_samples:,} samples are in; the same command goes on with {left:,}"
    if not done.n_samples:
        return f"done     {at}: nothing new"
    size = f"{human_bytes(done.size_bytes)} in {human_seconds(done.seconds)}"
    return f"written  {at}: {done.n_samples:,} samples, {done.n_tokens:,} tokens, {size}"


def _slots_in_words(plan: IngestPlan) -> Iterator[str]:
    proofs = plan.proof.slots if plan.proof else (None,) * len(plan.slots)
    for slot, label, proof in zip(plan.slots, plan.labels, proofs, strict=True):
        yield f"slot     {slot.name}: {label}, {slot.dtype}[token, {slot.width}]{_proven(proof)}"
    if plan.proof is not None:
        yield f"proof    {len(plan.proof.files)} files held against {plan.proof.source}, token by token"
    elif not plan.asked.proven:
        yield f"proof    none: the names are {as_said(plan.said_by)}, and the dataset's record says unproven"


def _proven(proof: SlotProof | None) -> str:
    if proof is None or proof.median is None:
        return ""
    nearest = (
        f"; {proof.nearest} is {proof.margin:,.0f} times as far" if proof.nearest and proof.margin else ""
    )
    off = f"{proof.median:.2%} off" if proof.median else "equal"
    return f" ({off} over {proof.n_rows:,} rows{nearest})"


def _some(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"         {line}" for line in lines[:_TOLD])
    if len(lines) > _TOLD:
        yield f"         and {len(lines) - _TOLD:,} more: --json tells all"
