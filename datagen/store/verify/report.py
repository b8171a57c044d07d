"""Verify a dataset: every invariant on disk, every problem by name.

It reads all there is: the chain of version records, every index and quarantine file that one names, every
byte of every part, and what lies about that nobody names. Parts are checked beside each other, in the memory
of a few blocks each.

What a clean report proves: nothing that was committed is missing, short, moved or changed. What it cannot:
that the states are right (that is for the audit set), nor that records without a digest (`dataset.json`, the
target's name in a schema, runs) still say what was first written.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from datagen.store.damage import damage
from datagen.store.dataset import Dataset
from datagen.store.errors import StoreError
from datagen.store.index import Location, location_of
from datagen.store.index_table import IndexTable
from datagen.store.record_files import read_record
from datagen.store.verify.chain import chain_problems, readable_versions, version_problems
from datagen.store.verify.names import named_problems
from datagen.store.verify.part import PartCheck
from datagen.store.verify.strays import stray_problems
from datagen.store.verify.values import problems_of
from schemas.problem import Problem, Severity
from schemas.records import PartRecord, VersionRecord

Progress = Callable[[int, int], None]
"""Told the bytes read and the bytes to read."""


@dataclass
class Report:
    """What was checked, and what was found."""

    problems: list[Problem] = field(default_factory=list)
    n_versions: int = 0
    n_parts: int = 0
    n_samples: int = 0
    n_tokens: int = 0
    size_bytes: int = 0

    @property
    def errors(self) -> list[Problem]:
        """The problems that make content wrong."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def notes(self) -> list[Problem]:
        """What a person should know of, and that fails nothing."""
        return [problem for problem in self.problems if problem.severity == "note"]

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.errors


def verify(
    dataset: Dataset,
    version: int | None = None,
    *,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Check one version, or all of them and what lies beside them, and return what was found.

    `workers` parts are checked at once. Raises `NotFoundError` when there is no such version.
    """
    # What this process has read or written before proves nothing of what lies there now.
    dataset = Dataset.open(dataset.door, dataset.name)
    if version is not None:
        dataset.version(version)
    report = Report(problems=[*chain_problems(dataset), *named_problems(dataset)])
    records = readable_versions(dataset)
    chosen = [record for record in records if version in (None, record.number)]
    named = _NamedParts()
    tables: dict[str, IndexTable] = {}
    for record in reversed(chosen):
        # Neighbours share all files but a few: those of the last one are kept, and not read again.
        tables = _readable_tables(dataset, record, tables, report.problems)
        report.problems += version_problems(dataset, record, tables)
        report.problems += named.take(record, tables)
    condemned = {part.part_id for part in records[-1].condemned} if records else set()
    severity: Severity = "note" if version is None else "error"
    report.problems += [_condemned(dataset, part, severity) for part in sorted(set(named.rows) & condemned)]
    parts = sorted(set(named.rows) - condemned)
    meter = _Meter(dataset, parts, on_progress)
    report.problems += _parts_problems(dataset, named, parts, workers, meter)
    if version is None:
        report.problems += stray_problems(dataset, records, set(named.rows))
    report.n_versions, report.n_parts, report.size_bytes = len(chosen), len(parts), meter.total_bytes
    if chosen:
        report.problems += _size_problems(dataset, chosen[-1], named.newest or set())
        report.n_samples, report.n_tokens = chosen[-1].n_samples, chosen[-1].n_tokens
    meter.finish()
    return report


def _readable_tables(
    dataset: Dataset, record: VersionRecord, held: dict[str, IndexTable], problems: list[Problem]
) -> dict[str, IndexTable]:
    """Return the tables of a version by sha256, those that cannot be read told and left out."""
    tables = {}
    for file in record.index:
        try:
            tables[file.sha256] = held.get(file.sha256) or dataset.tables.index_files([file])[0]
        except StoreError as error:
            found = problems_of(error, dataset.layout.index(file.sha256))
            problems += [problem for problem in found if problem not in problems]
    return tables


class _NamedParts:
    """Every part that a version names, with the index rows that do.

    Versions are taken newest first; `newest` are the parts of the first one taken.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[IndexTable, int]]] = defaultdict(list)
        self.fingerprints: dict[str, str] = {}
        self.sha256: dict[str, str] = {}
        self.newest: set[str] | None = None
        self._taken: set[str] = set()

    def take(self, record: VersionRecord, tables: dict[str, IndexTable]) -> Iterator[Problem]:
        """Take a version's index; parts that a newer version names are taken already."""
        known = set(self.rows)
        for name, table in tables.items():
            if name in self._taken:
                continue
            for number, part in enumerate(table.part_references()):
                digest = self.sha256.setdefault(part.part_id, part.sha256)
                if digest != part.sha256:
                    message = f"expected part.json with sha256 {digest}, got {part.sha256}"
                    yield damage(f"index/{name}.parquet: part {part.part_id}", "part_sha256", message)
                self.fingerprints.setdefault(part.part_id, record.schema_fingerprint)
                if part.part_id not in known:
                    self.rows[part.part_id].append((table, number))
        if self.newest is None:
            self.newest = set(self.rows)
        self._taken |= set(tables)

    def locations(self, part_id: str) -> Iterator[Location]:
        """Yield the index rows of a part."""
        for table, number in self.rows[part_id]:
            for row in np.flatnonzero(table.part_numbers == number):
                yield location_of(table, int(row))


def _parts_problems(
    dataset: Dataset, named: _NamedParts, parts: list[str], workers: int | None, meter: "_Meter"
) -> Iterator[Problem]:
    def check(part_id: str) -> list[Problem]:
        try:
            schema = dataset.schema(named.fingerprints[part_id])
            rows = named.locations(part_id)
            part = PartCheck(
                dataset.door, dataset.layout, part_id, named.sha256[part_id], schema, rows, meter.add
            )
            return list(part.problems())
        except StoreError as error:
            return problems_of(error, dataset.layout.part(part_id))

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(check, part) for part in parts]):
            yield from done.result()


def _size_problems(dataset: Dataset, record: VersionRecord, parts: set[str]) -> Iterator[Problem]:
    try:
        keys = [dataset.layout.part_record(part_id) for part_id in sorted(parts)]
        size = sum(read_record(PartRecord, dataset.door, key).size_bytes for key in keys)
    except StoreError:
        return  # told with the parts
    if size != record.size_bytes:
        key = dataset.layout.version(record.number)
        yield damage(key, "size_bytes", f"expected {size}, the bytes of its parts, got {record.size_bytes}")


class _Meter:
    """Counts the bytes read over threads."""

    def __init__(self, dataset: Dataset, parts: list[str], on_progress: Progress | None) -> None:
        folders = (dataset.layout.part(part) for part in parts)
        self.total_bytes = sum(e.size_bytes for folder in folders for e in dataset.door.entries(folder))
        self._done_bytes = 0
        self._on_progress = on_progress
        self._lock = Lock()

    def add(self, n_bytes: int) -> None:
        """Note bytes that were read."""
        with self._lock:
            self._done_bytes = min(self._done_bytes + n_bytes, self.total_bytes)
            if self._on_progress:
                self._on_progress(self._done_bytes, self.total_bytes)

    def finish(self) -> None:
        """All is read, or told to be missing."""
        self.add(self.total_bytes)


def _condemned(dataset: Dataset, part_id: str, severity: Severity) -> Problem:
    return Problem(
        where=dataset.layout.part(part_id),
        kind="condemned",
        message="expected a part that gc leaves alone, got a condemned one: its bytes may be gone",
        severity=severity,
    )
