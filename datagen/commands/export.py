"""`strata export`: a dataset as the files that a trainer of another library reads."""

import json
import os
import sys
from collections.abc import Iterator, Sequence

from datagen.export.exporting import FORMATS, Asked, ExportPlan, plan_export, run_export
from datagen.export.folder import Left, Written
from datagen.printing import printable
from datagen.progress import Transfer
from schemas.command import Parser, at_least_one, local_path, names
from schemas.figures import human_bytes
from schemas.final_norm import derived_note

PROG = "strata export"
DESCRIPTION = """Write a dataset as the files that a trainer of another library reads, its card beside them.

What the trainer will take is checked first, by name: nothing is written that would train on another tensor
than is meant. The folder is there whole or not at all; the same command goes on where it was stopped. Exit
codes: 0 written, 1 the dataset does not have what the format needs, 2 could not try."""


def command(arguments: Sequence[str]) -> int:
    """Write a dataset as the files that a trainer of another library reads."""
    given = _parser().parse_args(list(arguments))
    asked = Asked(
        dataset=given.dataset,
        format=given.format,
        out=given.out,
        fc=given.fc,
        target=given.target,
        splits=given.split or (),
        draft_vocab_size=given.draft_vocab_size,
        target_model=given.target_model,
        sequence_length=given.sequence_length,
        probs_top_k=given.probs_top_k,
    )
    plan = plan_export(asked)
    if given.dry_run:
        plan.folder.look()
    written = None if given.dry_run else run(plan, given.workers or _usual_workers())
    if given.json:
        print(json.dumps(as_data(plan, written)))  # noqa: T201
    else:
        print(printable("\n".join(in_words(plan, written))))  # noqa: T201
    return 0


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument("--dataset", required=True, metavar="ROOT/DATASET[@V]", help="as data/demo@3")
    parser.add_argument("--format", required=True, metavar="NAME", help=f"one of {', '.join(FORMATS)}")
    parser.add_argument(
        "--out", required=True, type=local_path, metavar="DIR", help="a folder that is not there yet"
    )
    parser.add_argument(
        "--fc",
        type=names,
        metavar="NAME,NAME,...",
        help="the draft's input, as layer2,layer15,layer27 (default: what the format's trainer takes)",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the state that the draft learns from (default: the one that the format's trainer takes)",
    )
    parser.add_argument(
        "--split",
        type=names,
        metavar="NAME,NAME,...",
        help="only these splits, the first for training (default: all, parted between two conversations)",
    )
    parser.add_argument(
        "--draft-vocab-size",
        type=at_least_one,
        metavar="N",
        help="write which N tokens the draft is to know, those trained on most often (default: all)",
    )
    parser.add_argument(
        "--target-model",
        metavar="MODEL",
        help="the target, a folder or a hub id, for a format that holds what its lm_head makes",
    )
    parser.add_argument(
        "--sequence-length",
        type=at_least_one,
        metavar="S",
        help="cut or pad every sample to S tokens, for a format that stacks them (default: the longest)",
    )
    parser.add_argument(
        "--probs-top-k",
        type=at_least_one,
        metavar="K",
        help="keep the K largest probabilities of a token, for a format that has them (default: all)",
    )
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="files written at once (default: two a core)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and how large")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _usual_workers() -> int:
    """Return two a core: while one waits for the disk, the other reads and hashes."""
    return 2 * len(os.sched_getaffinity(0))


def run(plan: ExportPlan, workers: int) -> Written:
    """Write an export, saying how far it is, and what is left when it ends too early."""
    left: list[Left] = []
    try:
        with Transfer("export", sys.stderr) as progress:
            return run_export(plan, workers, progress.show, left.append)
    finally:
        for one in left:
            print(printable(left_in_words(one, plan)), file=sys.stderr)  # noqa: T201


def left_in_words(left: Left, plan: ExportPlan) -> str:
    """Return what a person reads of an export that ended too early."""
    whole = f"{left.n_whole:,} of {left.n_files:,} files are whole in {left.path}"
    pinned = plan.pinned
    newer = (
        "" if pinned == plan.asked.dataset else f" (with --dataset {pinned} once there is a newer version)"
    )
    return f"strata: {whole}; the same command goes on{newer}"


def as_data(plan: ExportPlan, written: Written | None) -> dict[str, object]:
    """Return the plan, and what was written, as JSON types."""
    return {
        "dataset": plan.pinned,
        "format": plan.format.name,
        "trainer": plan.source.wiring.title,
        "wiring": plan.source.wiring.model_dump(mode="json"),
        "derived": [name for name in plan.source.wiring.tensors if name in plan.source.derived],
        "rows": len(plan.rows),
        "train_rows": plan.n_train,
        "tokens": plan.n_tokens,
        "planned_files": len(plan.files),
        "planned_states_bytes": plan.states_bytes,
        "planned_bytes": plan.size_bytes,
        "notes": [problem.model_dump(mode="json") for problem in plan.report.notes],
        "next_step": plan.next_step,
        "written": None
        if written is None
        else {
            "path": str(written.path),
            "files": written.n_files,
            "bytes": written.size_bytes,
            "kept": written.n_kept,
            "was_there": written.was_there,
        },
    }


def in_words(plan: ExportPlan, written: Written | None) -> Iterator[str]:
    """Yield what a person reads: from what, as what, how large, and how to train on it."""
    wiring = plan.source.wiring
    target = f"; target {wiring.target.tensor}" if wiring.target else ""
    held_out = len(plan.rows) - plan.n_train
    yield f"dataset  {plan.pinned}: {len(plan.rows):,} samples, {plan.n_tokens:,} tokens"
    yield f"format   {plan.format.name}, for {wiring.title}: input {', '.join(wiring.fc)}{target}"
    if plan.made_by is not None:
        yield f"made     {derived_note(plan.made_by)}"
    if plan.format.made_told:
        yield f"made     {plan.format.made_told}"
    if plan.format.holds_out:
        yield f"rows     {plan.n_train:,} for training, then {held_out:,} held out, in whole conversations"
    else:
        yield f"rows     {plan.n_train:,}, {plan.format.rows_told}"
    if written is None:
        files = f"{human_bytes(plan.states_bytes)} in {len(plan.files):,} files of states"
        small = human_bytes(plan.size_bytes - plan.states_bytes)
        yield f"size     {files}, and up to {small} in a few small ones; nothing is written"
        return
    kept = f", {written.n_kept:,} of them from before" if written.n_kept else ""
    done = "is there already" if written.was_there else "written"
    yield f"{done}  {written.path}: {written.n_files:,} files, {human_bytes(written.size_bytes)}{kept}"
    yield f"train    {plan.next_step}"
