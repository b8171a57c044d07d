"""What lies in a dataset's folder that no version names: notes, since no reader ever opens it.

Killed writers leave unfinished parts, a lost race leaves index files: gc removes what it condemned, the rest
costs space only.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from datagen.store.damage import damage
from datagen.store.dataset import Dataset, read_schema
from datagen.store.door import Entry
from datagen.store.errors import StoreError
from datagen.store.final_norms import read_final_norm
from datagen.store.keys import is_litter
from datagen.store.layout import DATASET, LATEST, PART_RECORD
from datagen.store.record_files import read_record
from datagen.store.verify.values import problems_of
from schemas.calibration import CalibrationRecord
from schemas.problem import Problem
from schemas.records import RunEnd, RunStart, VersionRecord
from schemas.run_checks import RunChecks


def stray_problems(
    dataset: Dataset, records: Sequence[VersionRecord], named_parts: Collection[str]
) -> Iterator[Problem]:
    """Yield a note for all that nobody names, and an error for every small record that cannot be read."""
    named = {dataset.layout.index(file.sha256) for record in records for file in record.index}
    named |= {dataset.layout.quarantine(file.sha256) for record in records for file in record.quarantine}
    parts: dict[str, list[Entry]] = defaultdict(list)
    for entry in dataset.door.entries(dataset.name):
        path = entry.key.removeprefix(f"{dataset.name}/")
        pieces = path.split("/")
        if is_litter(entry.key):
            yield _note(entry.key, "litter", f"left by a killed writer, {entry.size_bytes} bytes")
        elif pieces[0] == "parts":
            parts[pieces[1]].append(entry)
        elif pieces[0] in ("index", "quarantine"):
            if entry.key not in named:
                yield _note(entry.key, "orphan", f"named by no version, {entry.size_bytes} bytes")
        elif pieces[0] in ("schemas", "runs", "final_norms"):
            yield from _record_problems(dataset, entry.key, pieces)
        elif path not in (DATASET, LATEST) and pieces[0] not in ("versions", "names"):
            yield _note(entry.key, "stranger", "no file of a dataset")
    yield from _part_notes(dataset, records, parts, named_parts)


def _part_notes(
    dataset: Dataset, records: Sequence[VersionRecord], parts: dict[str, list[Entry]], named: Collection[str]
) -> Iterator[Problem]:
    condemned = {part.part_id for part in records[-1].condemned} if records else set()
    for part_id, entries in sorted(parts.items()):
        folder = dataset.layout.part(part_id)
        size = sum(entry.size_bytes for entry in entries)
        if part_id in condemned:
            yield _note(folder, "condemned", f"waits for gc's grace period to end, {size} bytes")
        elif part_id not in named:
            closed = any(entry.key == f"{folder}/{PART_RECORD}" for entry in entries)
            state = "closed, but named by no version" if closed else "unfinished: its writer works, or died"
            yield _note(folder, "orphan", f"{state}, {size} bytes")


def _record_problems(dataset: Dataset, key: str, pieces: list[str]) -> Iterator[Problem]:
    try:
        if pieces[0] == "schemas":
            read_schema(dataset.door, dataset.layout, pieces[-1].removesuffix(".json"))
        elif pieces[0] == "final_norms":
            schema = read_schema(dataset.door, dataset.layout, pieces[-1].removesuffix(".json"))
            read_final_norm(dataset.door, dataset.layout, schema)
        elif pieces[-1] == "start.json":
            read_record(RunStart, dataset.door, key)
        elif pieces[-1] == "end.json":
            read_record(RunEnd, dataset.door, key)
        elif pieces[-1] == "calibration.json":
            read_record(CalibrationRecord, dataset.door, key)
        elif pieces[-1] == "checks.json":
            read_record(RunChecks, dataset.door, key)
        else:
            expected = "expected start.json, end.json, checks.json or calibration.json"
            yield damage(key, "stranger", expected, None)
    except StoreError as error:
        yield from problems_of(error, key)


def _note(where: str, kind: str, message: str) -> Problem:
    return Problem(where=where, kind=kind, message=message, severity="note")
