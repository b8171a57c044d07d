"""A dataset behind a door: made once, opened by name, changed only by commits.

`Dataset` is the writing side and the way in; what a version holds is read through a `Snapshot`, which no
later commit changes.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Self

from datagen.store.append import Append
from datagen.store.closed_part import ClosedPart
from datagen.store.commit import Change, Committer
from datagen.store.damage import corrupt
from datagen.store.door import Door
from datagen.store.errors import AlreadyExistsError, ConflictError, GoneError, NotFoundError, RefusedError
from datagen.store.final_norms import keep_final_norm
from datagen.store.index import Index
from datagen.store.layout import DATASET, Layout
from datagen.store.names import VersionNames
from datagen.store.record_files import create_record, read_record
from datagen.store.rewrite import Drop, Rollback, Split
from datagen.store.snapshot import Sample, Snapshot
from datagen.store.tables import Tables
from datagen.store.version_log import VersionLog
from schemas.calibration import CalibrationRecord
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.record import sha256_hex
from schemas.records import (
    DatasetRecord,
    PartRecord,
    QuarantinedSample,
    RunEnd,
    RunStart,
    SplitRule,
    VersionName,
    VersionRecord,
)
from schemas.run_checks import RunChecks
from schemas.schema import Schema

__all__ = ["Dataset", "Sample", "Snapshot", "dataset_names"]


class Dataset:
    """One dataset; safe for threads, and for any number of processes that commit at once."""

    def __init__(self, door: Door, layout: Layout, record: DatasetRecord) -> None:
        self.door = door
        self.layout = layout
        self.record = record
        self.log = VersionLog(door, layout, record.dataset_id)
        self.tables = Tables(door, layout)
        self.names = VersionNames(door, layout, self.log)
        self.committer = Committer(self.log, self.tables, record.dataset_id)
        self._schemas: dict[str, Schema] = {}
        self._declared: str | None = None

    @classmethod
    def create(cls, door: Door, name: str, schema: Schema, *, exist_ok: bool) -> Self:
        """Make a dataset and return it; with `exist_ok`, one that is there is opened.

        Raises `AlreadyExistsError` without `exist_ok`, `ConflictError` with every difference when the
        dataset has versions of another schema, and `DoorError` where nothing can be written, or where a
        second create is not refused.
        """
        layout = Layout(name)
        if not door.exists(layout.dataset):
            door.probe_create(name)
            record = DatasetRecord(dataset_id=uuid.uuid4().hex, name=name, created_at=datetime.now(UTC))
            try:
                create_record(door, layout.dataset, record)
            except AlreadyExistsError:
                if not exist_ok:
                    raise
        elif not exist_ok:
            message = f"expected no dataset {name!r} yet, got one"
            raise AlreadyExistsError(
                f"{name} exists", [Problem(where=f"{door.url}/{name}", kind="exists", message=message)]
            )
        dataset = cls.open(door, name)
        dataset._declare(schema)
        return dataset

    @classmethod
    def open(cls, door: Door, name: str) -> Self:
        """Open a dataset by its name; raises `NotFoundError` that lists those there are in a folder."""
        layout = Layout(name)
        try:
            record = read_record(DatasetRecord, door, layout.dataset)
        except NotFoundError as error:
            there = dataset_names(door)
            known = "" if there is None else f"; there are: {', '.join(there) or 'none'}"
            message = f"expected a dataset with {DATASET}, got none{known}"
            problem = Problem(where=f"{door.url}/{name}", kind="dataset", message=message)
            raise NotFoundError(f"no dataset {name!r}", [problem]) from error
        return cls(door, layout, record)

    @property
    def name(self) -> str:
        """The name it is opened by."""
        return self.layout.name

    def schema(self, fingerprint: str) -> Schema:
        """Return a declared schema, its fingerprint checked."""
        known = self._schemas.get(fingerprint)
        if known is None:
            known = read_schema(self.door, self.layout, fingerprint)
            self._schemas[fingerprint] = known
        return known

    def keep_final_norm(self, schema: Schema, norm: FinalNorm) -> bool:
        """Keep the final norm of a declared schema's target, durable; return whether it is new.

        Raises `ConflictError` where it is another target's, or another one is kept.
        """
        return keep_final_norm(self.door, self.layout, self.schema(schema.fingerprint), norm)

    def latest(self) -> VersionRecord | None:
        """Return the newest version's record, or `None` before the first commit."""
        return self.log.latest()

    def version(self, number: int) -> VersionRecord:
        """Return a version's record; raises `NotFoundError` that says which versions there are."""
        return self.log.read(number)

    def number(self, version: int | str | None) -> int | None:
        """Return the number of a version that is given by its number, or by its name; `None` stays.

        Raises `NotFoundError` that lists the names there are.
        """
        return self.names.read(version).number if isinstance(version, str) else version

    def snapshot(self, version: int | str | None = None) -> Snapshot:
        """Return a reader of a version, by its number or its name; the newest by default.

        Raises `NotFoundError` when there is no such version, `CorruptError` when its index is damaged.
        """
        number = self.number(version)
        record = self.log.latest() if number is None else self.log.read(number)
        if record is None:
            message = "expected a version, got none: nothing is committed yet"
            problem = Problem(where=self.name, kind="version", message=message)
            raise NotFoundError(f"{self.name} has no version", [problem])
        return Snapshot(
            self.door,
            self.layout,
            record,
            self.schema(record.schema_fingerprint),
            self.tables.index(record),
            self.why_gone,
        )

    def why_gone(self, part_id: str) -> GoneError | None:
        """Return the error of a part that gc may have swept, or `None` of one that gc has not condemned."""
        newest = self.log.latest()
        condemned = {part.part_id: part.condemned_at for part in newest.condemned} if newest else {}
        if newest is None or part_id not in condemned:
            return None
        at = f"{condemned[part_id]:%Y-%m-%d %H:%M} UTC"
        problem = Problem(
            where=self.layout.part(part_id),
            kind="gone",
            message=f"expected the part's files, got none: gc condemned it on {at}, and swept it",
            repair=f"read version {newest.number}, or make these samples again",
        )
        return GoneError("these samples are gone: no version that was kept has them", [problem])

    def write_run_start(self, record: RunStart) -> None:
        """Store `runs/<run>/start.json`; raises `AlreadyExistsError` when that run has another one."""
        create_record(self.door, self.layout.run_start(record.run_id), record)

    def write_run_end(self, record: RunEnd) -> None:
        """Store `runs/<run>/end.json`; raises `AlreadyExistsError` when that run has another one."""
        create_record(self.door, self.layout.run_end(record.run_id), record)

    def write_run_checks(self, record: RunChecks) -> None:
        """Store `runs/<run>/checks.json`; raises `AlreadyExistsError` when that run has another one."""
        create_record(self.door, self.layout.run_checks(record.run_id), record)

    def run_checks(self) -> list[RunChecks]:
        """Return what the content checks of every run came to, oldest first; listed like `run_starts`."""
        found = [read_record(RunChecks, self.door, key) for key in self._run_keys("checks.json")]
        return sorted(found, key=lambda record: (record.made_at, record.run_id))

    def write_calibration(self, record: CalibrationRecord) -> None:
        """Store `runs/<run>/calibration.json` of an audit set, once for a run."""
        create_record(self.door, self.layout.calibration(record.run_id), record)

    def calibrations(self) -> list[CalibrationRecord]:
        """Return what an audit set was held against, oldest first; listed like `run_starts`."""
        found = [read_record(CalibrationRecord, self.door, key) for key in self._run_keys("calibration.json")]
        return sorted(found, key=lambda record: (record.made_at, record.run_id))

    def run_starts(self) -> list[RunStart]:
        """Return every run's start, oldest first. It lists a folder: for resume, show and verify only."""
        found = [read_record(RunStart, self.door, key) for key in self._run_keys("start.json")]
        return sorted(found, key=lambda run: (run.started_at, run.run_id))

    def run_ends(self) -> list[RunEnd]:
        """Return how every run ended that did, oldest first; listed like `run_starts`."""
        found = [read_record(RunEnd, self.door, key) for key in self._run_keys("end.json")]
        return sorted(found, key=lambda run: (run.ended_at, run.run_id))

    def commit(
        self, parts: Sequence[ClosedPart], quarantined: Sequence[QuarantinedSample], *, run_id: str
    ) -> VersionRecord:
        """Commit closed parts and the samples that were not made; return the version that holds them all.

        Committing the same again changes nothing and returns the newest version. Raises `ConflictError` when
        a part is condemned or of another schema, `CorruptError` when one is not as it was closed, and
        `RefusedError` when there is nothing to commit and no version yet. On any error the samples are
        either committed or not, never in part: committing them again is always right.
        """
        self._check_parts(parts)
        fingerprint = self._fingerprint(parts, run_id)
        record = self.committer.commit(Append(self.tables, parts, quarantined, fingerprint, run_id))
        if record is None:
            raise RefusedError(f"{self.name}: nothing to commit, no part and no quarantined sample")
        return record

    def drop(self, sample_ids: Iterable[str]) -> VersionRecord:
        """Leave samples out of the next version; raises `NotFoundError` naming those the newest lacks."""
        wanted = frozenset(sample_ids)
        snapshot = self.snapshot()
        problems = [
            Problem(
                where=sample_id, kind="sample", message="expected a sample of the newest version, got none"
            )
            for sample_id in sorted(wanted)
            if sample_id not in snapshot.index
        ]
        if problems:
            raise NotFoundError("these samples cannot be dropped", problems)
        return self.change(Drop(wanted, self.part_bytes))[0]

    def split(self, rules: Sequence[SplitRule]) -> VersionRecord:
        """Replace the split rules in the next version."""
        return self.change(Split(tuple(rules)))[0]

    def rollback(self, number: int) -> VersionRecord:
        """List again what version `number` lists; raises `ConflictError` when its parts are condemned."""
        target = self.version(number)
        return self.change(Rollback(target, tuple(self.tables.index(target))))[0]

    def name_version(self, name: str, number: int) -> tuple[VersionName, bool]:
        """Give a version a name that never moves; return its record, and whether it is new.

        Raises `AlreadyExistsError` that says which version has the name, `ConflictError` when gc has
        condemned parts of the version, `NotFoundError` when there is none, or none can be called so.
        """
        record = self.version(number)
        lost = [] if self.door.exists(self.layout.version_name(name)) else self.condemned_parts(record)
        if lost:
            message = "expected a part that gc leaves alone, got a condemned one: its bytes may be gone"
            problems = [
                Problem(where=self.layout.part(part), kind="condemned", message=message) for part in lost
            ]
            raise ConflictError(f"version {number} cannot be given a name", problems)
        return self.names.create(name, record)

    def condemned_parts(self, record: VersionRecord) -> list[str]:
        """Return the parts of a version that gc has condemned since, and may have swept; sorted."""
        newest = self.latest()
        condemned = {part.part_id for part in newest.condemned} if newest else set()
        if not condemned:
            return []
        return sorted(condemned & Index(self.tables.index(record)).parts().keys())

    def change(
        self, change: Change, expected: int | None = None, *, dry_run: bool = False
    ) -> tuple[VersionRecord, bool]:
        """Make the version that a change asks for; return the newest record, and whether it is a new one.

        With `dry_run` nothing is stored: whether there would be a new one. Raises `ConflictError` when the
        newest version is not the `expected` one (see `Committer.change`), and `NotFoundError` when there is
        no version yet.
        """
        record, changed = self.committer.change(change, expected, dry_run=dry_run)
        if record is None:
            raise NotFoundError(f"{self.name} has no version yet: commit a part first")
        return record, changed

    def _declare(self, schema: Schema) -> None:
        fingerprint = schema.fingerprint
        newest = self.latest()
        if newest and newest.schema_fingerprint != fingerprint:
            theirs = self.schema(newest.schema_fingerprint)
            problems = identity_differences("schema", schema.by_name(), theirs.by_name())
            raise ConflictError(f"{self.name} has another schema: choose another dataset", problems)
        try:
            create_record(self.door, self.layout.schema(fingerprint), schema)
        except AlreadyExistsError:
            # The same content under another name of the target: the first stays.
            self.schema(fingerprint)
        self._declared = fingerprint

    def _fingerprint(self, parts: Sequence[ClosedPart], run_id: str) -> str:
        """Return the schema of a first version."""
        if parts:
            fingerprint = parts[0].record.schema_fingerprint
        elif self._declared:
            fingerprint = self._declared
        elif newest := self.latest():
            fingerprint = newest.schema_fingerprint
        else:
            start = read_record(RunStart, self.door, self.layout.run_start(run_id))
            fingerprint = start.schema_fingerprint
        self.schema(fingerprint)
        return fingerprint

    def _check_parts(self, parts: Sequence[ClosedPart]) -> None:
        problems = []
        for part in parts:
            key = self.layout.part_record(part.record.part_id)
            try:
                got = sha256_hex(self.door.read(key))
            except NotFoundError:
                got = "no such file"
            if got != part.record_sha256:
                message = f"expected sha256 {part.record_sha256} as it was closed, got {got}"
                problems.append(Problem(where=key, kind="part", message=message, repair="make it again"))
        if problems:
            raise ConflictError("these parts cannot be committed", problems)

    def part_bytes(self, part_ids: Iterable[str]) -> int:
        """Return the bytes of parts, summed."""
        keys = (self.layout.part_record(part_id) for part_id in part_ids)
        return sum(read_record(PartRecord, self.door, key).size_bytes for key in keys)

    def _run_keys(self, file: str) -> Iterator[str]:
        return (entry.key for entry in self.door.entries(self.layout.runs) if entry.key.endswith(f"/{file}"))


def read_schema(door: Door, layout: Layout, fingerprint: str) -> Schema:
    """Read a declared schema; raises `CorruptError` when it is not the one of that fingerprint."""
    key = layout.schema(fingerprint)
    schema = read_record(Schema, door, key)
    if schema.fingerprint != fingerprint:
        raise corrupt(key, "fingerprint", f"expected {fingerprint}, got {schema.fingerprint}")
    return schema


def dataset_names(door: Door) -> list[str] | None:
    """Return the datasets in a folder, or `None` where the root is a bucket."""
    marker = door.local_path(DATASET)
    if marker is None:
        return None
    if not marker.parent.is_dir():
        return []
    return sorted(path.parent.name for path in marker.parent.glob(f"*/{DATASET}"))
