"""An export: a version's samples in another library's file format, proven to be what its trainer takes.

Nothing is written before the wiring holds against the dataset. Rows stand as `datagen.store.trainer_rows`
orders them.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from datagen.adapters.exports.automodel import AutomodelFormat
from datagen.adapters.exports.deepspec import DeepSpecFormat
from datagen.adapters.exports.eagle import EagleFormat
from datagen.adapters.exports.format import ExportFormat, PlannedFile, Row, Source
from datagen.adapters.exports.modelopt import ModelOptFormat
from datagen.adapters.exports.specforge import SpecForgeFormat
from datagen.adapters.exports.speculators_files import SpeculatorsFormat
from datagen.adapters.exports.speculators_v1 import SpeculatorsV1Format
from datagen.engines.target_head import TargetHead
from datagen.errors import ConfigError, ExportError
from datagen.export.file_writing import write_files
from datagen.export.folder import ExportFolder, Left, Written, writing
from datagen.export.target import read_head
from datagen.kept_norm import norm_of
from datagen.store.dataset import Dataset
from datagen.store.index import Location
from datagen.store.opening import open_door
from datagen.store.snapshot import Snapshot
from datagen.store.splits import assign, rule_of
from datagen.store.trainer_rows import ROWS, in_rows, rows_text
from datagen.wiring.checking import card_of
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.card import Card
from schemas.final_norm import FinalNorm
from schemas.judging import DatasetFacts, Report
from schemas.problem import Problem
from schemas.record import canonical_json, sha256_hex
from schemas.reference import DatasetReference, parse_reference
from schemas.schema import Schema
from schemas.trainer_wiring import tensor_problems, trainer_wiring
from schemas.wiring import Wiring

FORMATS: Mapping[str, ExportFormat] = {
    known.name: known
    for known in (
        SpeculatorsFormat(),
        SpeculatorsV1Format(),
        SpecForgeFormat(),
        ModelOptFormat(),
        EagleFormat(),
        DeepSpecFormat(),
        AutomodelFormat(),
    )
}
"""Every format that there is, as `--format` names it."""


_ROW_BYTES, _LINE_BYTES, _CARD_BYTES = 160, 80, 2**14
"""Of a row's line beside its names, a file's line in the list of checksums beside its path, and the card with
what says which export it is."""


@dataclass(frozen=True)
class Asked:
    """What is to be exported; without `fc` and `target`, what the format's trainer takes by default."""

    dataset: str
    format: str
    out: Path
    fc: tuple[str, ...] | None = None
    target: str | None = None
    splits: tuple[str, ...] = ()
    draft_vocab_size: int | None = None
    target_model: str | None = None
    """A folder or a hub id, for what the target's weights alone say."""
    sequence_length: int | None = None
    probs_top_k: int | None = None


@dataclass(frozen=True)
class ExportPlan:
    """What will be written, in which wiring; the first `n_train` of `rows` are for training."""

    asked: Asked
    format: ExportFormat
    source: Source
    card: Card
    report: Report
    rows: tuple[Row, ...]
    n_train: int
    files: tuple[PlannedFile, ...]

    @property
    def pinned(self) -> str:
        """The dataset with the version's number, as `--dataset` takes it."""
        reference = parse_reference(self.asked.dataset)
        return str(reference._replace(version=self.source.snapshot.version.number))

    @property
    def states_bytes(self) -> int:
        """Bytes of the large files, exactly: any other size ends the export."""
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all files, at most: the small ones are reckoned."""
        size, target = self.asked.draft_vocab_size, self.source.schema.target
        maps = 0 if size is None else 8 * size + target.vocab_size
        listed = _CARD_BYTES
        for file in self.files:
            named = len(file.path.encode())
            listed += _LINE_BYTES + named
            listed += sum(_ROW_BYTES + named + _quoted_bytes(row.location) for row in file.rows)
        return self.states_bytes + self.format.beside_bytes(self.source) + maps + listed

    @property
    def folder(self) -> ExportFolder:
        """Where it will be put."""
        return ExportFolder(self.asked.out, self.identity, self.files, self.size_bytes)

    @property
    def n_tokens(self) -> int:
        """Tokens of all rows."""
        return sum(row.location.n_tokens for row in self.rows)

    @property
    def made_by(self) -> FinalNorm | None:
        """The target's norm where a tensor of the wiring is made by it, and not stored."""
        made = set(self.source.derived).intersection(self.source.wiring.tensors)
        return self.source.final_norm if made else None

    @property
    def identity(self) -> bytes:
        """What an export that was begun must have in common to be gone on with, as canonical JSON."""
        return canonical_json(
            {
                "format": "strata.export.v1",
                "file_format": self.format.name,
                "card": self.card.model_dump(mode="json"),
                "splits": list(self.asked.splits),
                "draft_vocab_size": self.asked.draft_vocab_size,
                "sequence_length": self.asked.sequence_length,
                "probs_top_k": self.asked.probs_top_k,
                "final_norm": sha256_hex(self.made_by.content) if self.made_by else None,
                "rows": len(self.rows),
                "train_rows": self.n_train,
                "tokens": self.n_tokens,
            }
        )

    @property
    def next_step(self) -> str:
        """The command that trains on the export."""
        return self.format.next_step(self.asked.out, self.n_train, len(self.rows), self.source)


def plan_export(asked: Asked) -> ExportPlan:
    """Return what will be written; nothing is.

    Raises `ExportError` with the problems of `strata check` where dataset and trainer do not mean the same,
    `ConfigError` for a format or a tensor that there is not, `NotFoundError` for a dataset or a split,
    `GoneError` for a version that gc has swept.
    """
    if asked.format not in FORMATS:
        message = f"expected one of {', '.join(FORMATS)}, got {asked.format!r}"
        raise ConfigError("no such format", [Problem(where="--format", kind="format", message=message)])
    file_format = FORMATS[asked.format]
    reference = parse_reference(asked.dataset)
    _refuse_inside(asked.out, reference)
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    snapshot = dataset.snapshot(reference.version)
    norm = norm_of(snapshot, asked.target_model)
    pinned = str(reference._replace(version=snapshot.version.number))
    facts = DatasetFacts(pinned, snapshot.schema, snapshot.version, norm)
    trainer = file_format.trainer_of(snapshot.schema)
    wiring, report = judged(facts, trainer, asked.fc, asked.target)
    rows, n_train = rows_of(snapshot, asked.splits)
    _refuse_gone(dataset, snapshot, rows)
    source = Source(
        snapshot,
        wiring,
        norm,
        rows,
        draft_vocab_size=asked.draft_vocab_size,
        head=_head(asked, snapshot.schema, wiring) if file_format.needs_head else None,
        sequence_length=asked.sequence_length,
        probs_top_k=asked.probs_top_k,
    )
    problems = [
        *_option_problems(file_format, asked),
        *_vocabulary_problems(file_format, source),
        *file_format.problems(source),
    ]
    if problems:
        raise ExportError(f"{facts.reference} cannot be exported for {trainer}", problems)
    return ExportPlan(
        asked=asked,
        format=file_format,
        source=source,
        card=card_of(report),
        report=report,
        rows=rows,
        n_train=n_train if file_format.holds_out else len(rows),
        files=tuple(file_format.planned(rows, source)),
    )


def _refuse_inside(out: Path, reference: DatasetReference) -> None:
    """Raise `ConfigError` for a place among a dataset's own files, which gc sweeps."""
    if "://" in reference.root:
        return
    dataset, place = (Path(os.path.realpath(path)) for path in (f"{reference.root}/{reference.dataset}", out))
    if place.is_relative_to(dataset):
        message = f"expected a place outside of the dataset ({dataset}), got one in it"
        problem = Problem(where=str(out), kind="place", message=message, repair="give another --out")
        raise ConfigError("the export cannot be put there", [problem])


def _refuse_gone(dataset: Dataset, snapshot: Snapshot, rows: Iterable[Row]) -> None:
    """Raise `GoneError` where gc has swept what rows lie in; only condemned parts are looked for."""
    condemned = set(dataset.condemned_parts(snapshot.version))
    places = {row.location.part_id: row.location for row in rows if row.location.part_id in condemned}
    for at in places.values():
        snapshot.part(at).read_tokens(at.row_start, at.n_tokens, "input_ids")


def _head(asked: Asked, schema: Schema, wiring: Wiring) -> TargetHead | None:
    """Return the ends of the model that was named, in the dtype of the states."""
    return (
        None
        if asked.target_model is None
        else read_head(asked.target_model, schema.target, schema.tensor(wiring.fc[0]).dtype)
    )


def _option_problems(file_format: ExportFormat, asked: Asked) -> Iterator[Problem]:
    for name in ("sequence_length", "probs_top_k"):
        if getattr(asked, name) is not None and name not in file_format.options:
            known = [one.name for one in FORMATS.values() if name in one.options]
            message = f"expected a format that knows it ({', '.join(known)}), got {file_format.name}"
            flag = f"--{name.replace('_', '-')}"
            yield Problem(where=flag, kind="option", message=message, repair="leave it out")
    if not file_format.holds_out and len(asked.splits) > 1:
        message = (
            f"expected one split, since {file_format.name}'s trainer trains on every row of a folder, "
            f"got {', '.join(asked.splits)}"
        )
        repair = f"give --split {asked.splits[0]}; the others are exports of their own"
        yield Problem(where="--split", kind="split", message=message, repair=repair)


def _vocabulary_problems(file_format: ExportFormat, source: Source) -> Iterator[Problem]:
    size, has = source.draft_vocab_size, source.schema.target.vocab_size
    if size is None:
        return
    message = None
    if not file_format.vocabulary_files:
        message = f"expected a format with a file for it, got {file_format.name}, which has none"
    elif size > has:
        message = f"expected at most {has:,}, which the target has, got {size:,}"
    if message is not None:
        repair = "leave it out" if size <= has else "give fewer"
        yield Problem(where="--draft-vocab-size", kind="vocabulary", message=message, repair=repair)


def judged(
    facts: DatasetFacts, trainer: str, fc: Sequence[str] | None, target: str | None
) -> tuple[Wiring, Report]:
    """Return the wiring of a format's trainer on a dataset, and the report of the check that it passed.

    Raises `ExportError` with every problem.
    """
    names = [*(fc or ()), *([target] if target else [])]
    if wrong := tensor_problems(facts.schema.target, names):
        raise ConfigError(f"no such tensor of {facts.schema.target.model_id}", wrong)
    wiring, report, problems = trainer_wiring(facts, trainer, fc, target)
    if wiring is None:
        told = [_with_flag(problem, facts) for problem in problems]
        raise ExportError(f"{facts.reference} cannot be exported for {trainer}", told)
    return wiring, report


def _with_flag(problem: Problem, facts: DatasetFacts) -> Problem:
    """Say of layer ids, which are a trainer's own numbers, what to write here: the tensors' names."""
    if problem.kind not in ("ids", "boundary", "slots") or "ids" not in problem.where:
        return problem
    inputs = [name for name in facts.schema.names if name not in (FINAL, FINAL_NORMED)]
    repair = f"name the draft's input with --fc, of {', '.join(inputs)}"
    return problem.model_copy(update={"repair": repair})


def rows_of(snapshot: Snapshot, splits: Sequence[str]) -> tuple[tuple[Row, ...], int]:
    """Return the samples in the order of rows, and how many of the first are for training.

    Without splits the version is one group of rows, else each split is. Raises `NotFoundError` for a split
    that there is not, `ExportError` when there is nothing to export.
    """
    index = snapshot.index
    groups: list[Iterable[Location]] = [] if splits else [index]
    for split in splits:
        chosen = assign(index, rule_of(snapshot.version.splits, split)).positions(split)
        groups.append([index.at(int(position)) for position in chosen])
    located, n_train = in_rows(groups)
    if not located:
        message = f"expected samples in {' and '.join(splits) or 'the version'}, got none"
        raise ExportError(
            "there is nothing to export", [Problem(where="split", kind="empty", message=message)]
        )
    return tuple(Row(number, location) for number, location in enumerate(located)), n_train


def run_export(
    plan: ExportPlan,
    workers: int,
    on_progress: Callable[[int, int], None] | None = None,
    on_stopped: Callable[[Left], object] = lambda _left: None,
) -> Written:
    """Write an export, or go on with one that was stopped, and return what was written.

    The folder is there whole or not at all: it is made beside, under a hidden name, and renamed last. One
    that is there and equal is left as it is, once every file of it was hashed again: `ExportError` names
    those that are gone or have changed. `on_progress` is told bytes done and bytes in all, `on_stopped` what
    is left where the writing ends with an error, or by Ctrl-C.
    """
    with plan.folder as folder:
        if folder.is_whole:
            folder.check(workers, on_progress)
            return folder.written()
        try:
            with writing(folder.path):
                _write(plan, folder, workers, on_progress)
        except BaseException:
            on_stopped(folder.left())
            raise
        return folder.written()


def _write(
    plan: ExportPlan, folder: ExportFolder, workers: int, on_progress: Callable[[int, int], None] | None
) -> None:
    # In the order in which the samples lie in their parts, whatever their rows are.
    files = sorted(plan.files, key=lambda file: _lies(file.rows[0].location))
    write_files(folder, files, lambda file: plan.format.pieces(file, plan.source), workers, on_progress)
    beside = plan.format.write_beside(folder.path, plan.rows, plan.source)
    if plan.source.vocabulary is not None:
        beside += plan.format.write_vocabulary(folder.path, plan.source.vocabulary)
    paths = {row.number: file.path for file in plan.files for row in file.rows}
    lies_in = [paths[row.number] for row in plan.rows]
    folder.put(ROWS, rows_text([row.location for row in plan.rows], lies_in))
    folder.finish(plan.card, [*beside, ROWS])


def _quoted_bytes(location: Location) -> int:
    return len(json.dumps(location.conversation_id))


def _lies(location: Location) -> tuple[str, int]:
    return location.part_id, location.row_start
