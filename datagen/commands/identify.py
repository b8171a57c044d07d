"""`strata identify`: which tensors somebody's unlabelled hidden states are."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from datagen.engines.settings import EngineSettings
from datagen.printing import PlainConsole, printable
from datagen.replay.identify import chosen_files, dtype_of_files, identify
from datagen.replay.identify_answer import Found, Identified, SlotAnswer
from datagen.replay.identify_sources import AuditSource, BothSources, ModelSource, Source
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from schemas.command import Parser, at_least_one, local_path
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.schema import DTYPES, DType

PROG = "strata identify"
TABLE_WIDTH = 132
DESCRIPTION = """Say which tensor of the target each slot of somebody's files is, and by what margin.

Files of speculators (hs_0.safetensors, data_0.pt), SpecForge (.ckpt, .ckpt.gz), ModelOpt (.pt), or folders
of them. Nothing in them is run. They are held row by row against the target's own states of the same token
ids; without --target and --audit only what norms allow is said. Exit codes: 0 every slot is one tensor of its
own tokens, in the rows that were compared, 1 something matches nothing or is mixed up, 2 could not try."""


def command(arguments: Sequence[str]) -> int:
    """Say which tensors somebody's unlabelled hidden states are: boundary, norm state, and whose rows."""
    parser = _parser()
    given = parser.parse_args(list(arguments))
    files, problems = chosen_files(given.files, given.at_most)
    # Before a model is loaded for nothing.
    held = dtype_of_files(files, problems)
    source = _source(given.target, given.audit, given.dtype or held, given.device)
    with _progress(len(files)) as on_step:
        found = identify(files, source, on_step)
    found = Identified(found.source, found.target, found.slots, (*problems, *found.problems))
    if given.json:
        print(json.dumps(as_data(found)))  # noqa: T201
    else:
        _print(found)
    return 1 if found.errors else 0


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument("files", nargs="+", type=local_path, metavar="FILE", help="files, or folders of them")
    parser.add_argument(
        "--target", metavar="MODEL", help="the target: a folder with config.json and safetensors, or a hub id"
    )
    parser.add_argument(
        "--audit", metavar="ROOT/DATASET[@V]", help="an audit set of the target, in its place or beside it"
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, help="what the target computes in (default: what the first file holds)"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--at-most", type=at_least_one, default=16, metavar="N", help="files of folders (default: 16)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _source(target: str | None, audit: str | None, dtype: DType, device: str) -> Source | None:
    kept = open_audit(audit) if audit else None
    if target is None:
        return kept
    model = ModelSource.of(EngineSettings.model_validate({"model": target, "dtype": dtype, "device": device}))
    return BothSources(kept, model) if kept else model


def open_audit(reference: str) -> AuditSource:
    """Open an audit set; raises `NotFoundError` where it is not, `ConfigError` where it is none."""
    root, name, version = parse_reference(reference)
    return AuditSource(Dataset.open(open_door(root), name).snapshot(version), name)


@contextmanager
def _progress(n_files: int) -> Iterator[Callable[[int, int], None]]:
    console = Console(file=sys.stderr)
    columns = (TextColumn("identify"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("identify", total=2 * n_files)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def as_data(found: Identified) -> dict[str, object]:
    """Return an identification as JSON types."""
    return {
        "held_against": found.source,
        "target": found.target.model_dump(mode="json") if found.target else None,
        "ok": not found.errors,
        "slots": [_slot_data(slot) for slot in found.slots],
        "problems": [problem.model_dump(mode="json") for problem in found.problems],
    }


def _slot_data(slot: SlotAnswer) -> dict[str, object]:
    data = asdict(slot)
    if slot.found is not None:
        data["found"] |= {
            "boundary": slot.found.place.boundary,
            "norm": slot.found.place.norm,
            "margin": slot.found.margin,
        }
        del data["found"]["place"]
    return data | {"problems": [problem.model_dump(mode="json") for problem in slot.problems]}


def _print(found: Identified) -> None:
    console = PlainConsole(TABLE_WIDTH)
    groups = grouped(found.slots)
    if found.source is not None:
        console.print(f"held against {found.source}, token by token", markup=False)
        console.print()
        console.print(_found_table(groups))
    else:
        console.print("held against nothing: norms alone tell no tensor's name (give --target, or --audit)")
    console.print()
    console.print(_norm_table(groups))
    console.print("[dim]L2 norms of tokens; with several files the median of each figure[/dim]")
    for line in _words(found):
        print(printable(line))  # noqa: T201


def grouped(slots: Sequence[SlotAnswer]) -> list[list[SlotAnswer]]:
    """Return the slots that are said in one line: the same slot of a layout, of the same tensor."""
    groups: dict[tuple[str, str, str | None], list[SlotAnswer]] = {}
    for slot in slots:
        key = slot.layout, slot.slot, slot.found.name if slot.found else None
        groups.setdefault(key, []).append(slot)
    return list(groups.values())


def _found_table(groups: Sequence[Sequence[SlotAnswer]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("slot", "dtype", "is", "norm state"):
        table.add_column(title, no_wrap=True)
    for title in ("boundary", "files", "rows", "median", "p99", "nearest", "off by", "margin"):
        table.add_column(title, justify="right", no_wrap=True)
    for group in groups:
        first = group[0]
        rows = sum(slot.found.n_rows if slot.found else slot.n_rows for slot in group)
        counts = str(len(group)), f"{rows:,}"
        known = [slot.found for slot in group if slot.found is not None]
        if not known:
            table.add_row(first.slot, first.dtype, "nothing", "", "", *counts, "", "", "", "", "")
            continue
        closest = min(known, key=lambda one: one.margin or float("inf"))
        errors = (f"{max(one.median for one in known):.2%}", f"{max(one.p99 for one in known):.2%}")
        place = known[0].place
        whose = (known[0].name, place.norm, str(place.boundary))
        table.add_row(first.slot, first.dtype, *whose, *counts, *errors, *_rival(closest))
    return table


def _rival(found: Found) -> tuple[str, str, str]:
    if found.rival is None or found.rival_median is None:
        return "", "", ""
    margin = "exact" if found.margin is None else f"{found.margin:,.0f}x"
    return found.rival, f"{found.rival_median:.2%}", margin


def _norm_table(groups: Sequence[Sequence[SlotAnswer]]) -> Table:
    figures = ("median", "p99", "mean", "largest", "first", "last")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("slot", "layout", "width", *figures):
        table.add_column(title, justify="left" if title in ("slot", "layout") else "right")
    for group in groups:
        lines = [slot.norms for slot in group if slot.norms is not None]
        values = [median(getattr(line, figure) for line in lines) for figure in figures] if lines else []
        shown = [f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for value in values]
        table.add_row(group[0].slot, group[0].layout, str(group[0].width), *shown)
    return table


def _words(found: Identified) -> Iterator[str]:
    for slot in found.slots if found.source is None else ():
        yield from (f"{slot.where}: {told}" for told in slot.allowed)
    errors = found.errors
    yield ""
    if errors:
        yield f"{len(errors):,} problem{'s' if len(errors) > 1 else ''}" + (
            f", in {found.compared[0]:,} of {found.compared[1]:,} rows that were compared"
            if found.source is not None and found.compared[0] < found.compared[1]
            else ""
        )
    elif found.source is None:
        yield "no fault is to be seen, and nothing is known of which tensors they are"
    elif found.compared[0] < found.compared[1]:
        seen, rows = found.compared
        yield f"of {seen:,} of {rows:,} rows each slot is one tensor of its own tokens; no other was compared"
    else:
        yield "every slot is one tensor of its own tokens"
    yield from (f"  {told}" for told in _once(errors))
    problems = [*found.problems, *(problem for slot in found.slots for problem in slot.problems)]
    yield from (
        f"  note: {told}" for told in _once([problem for problem in problems if problem.severity == "note"])
    )


def _once(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield each problem in words; what is said of the same slot of many files is said once."""
    same: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        same.setdefault((problem.where.rpartition(": ")[2], problem.message), []).append(problem)
    for first, *others in same.values():
        yield f"{first}" + (f" (and so in {len(others):,} more files)" if others else "")
