"""A commit: compute a change on the newest version, store its files, and create the next number.

Whoever loses the race for a number computes the change again on the winner's version. Index files are durable
before the version that names them, the version before the hint that points at it: a reader sees a version
whole or not at all, and a kill at any moment leaves at most files that no version names.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from datagen.store.errors import ConflictError
from datagen.store.index_table import IndexTable
from datagen.store.tables import Tables
from datagen.store.tiers import merge_groups
from datagen.store.version_log import VersionLog
from schemas.problem import Problem
from schemas.records import (
    CondemnedPart,
    IndexFile,
    Operation,
    QuarantinedSample,
    SplitRule,
    VersionRecord,
)

_MOST_RIVALS = 1000


@dataclass(frozen=True)
class Base:
    """The version that a change is computed on; before the first commit it has no record."""

    record: VersionRecord | None
    tables: tuple[IndexTable, ...] = ()

    @property
    def number(self) -> int:
        """The version's number, 0 before the first commit."""
        return self.record.number if self.record else 0

    @property
    def condemned(self) -> tuple[CondemnedPart, ...]:
        """Every part that gc may remove, or has removed."""
        return self.record.condemned if self.record else ()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The index files of `tables`."""
        return self.record.index if self.record else ()


@dataclass(frozen=True)
class Draft:
    """What the next version is to be.

    `kept` are index files of the base or of an older version that it names unchanged, with their tables;
    `fresh` are tables to be written. `quarantine` is carried over, `quarantined` are new rows.
    """

    operation: Operation
    schema_fingerprint: str
    run_id: str | None
    size_bytes: int
    kept: tuple[tuple[IndexFile, IndexTable], ...] = ()
    fresh: tuple[IndexTable, ...] = ()
    quarantine: tuple[IndexFile, ...] = ()
    quarantined: tuple[QuarantinedSample, ...] = ()
    splits: tuple[SplitRule, ...] = ()
    condemned: tuple[CondemnedPart, ...] = ()

    @classmethod
    def carried_over(
        cls, record: VersionRecord, tables: Sequence[IndexTable], operation: Operation
    ) -> "Draft":
        """Return a draft that says the same as `record`."""
        return cls(
            operation=operation,
            schema_fingerprint=record.schema_fingerprint,
            run_id=None,
            size_bytes=record.size_bytes,
            kept=tuple(zip(record.index, tables, strict=True)),
            quarantine=record.quarantine,
            splits=record.splits,
            condemned=record.condemned,
        )


class Outcome(NamedTuple):
    """What a change came to: the newest record (`None` before the first), and whether the change made it."""

    record: VersionRecord | None
    changed: bool


class Change(Protocol):
    """A change to a dataset."""

    def draft(self, base: Base) -> Draft | None:
        """Return what follows `base`, or `None` when it already says all that this change asks for.

        Called again, on another base, after every lost race.
        """
        ...


class Committer:
    """Makes versions of one dataset; any number of them may work at once, in any processes."""

    def __init__(self, log: VersionLog, tables: Tables, dataset_id: str) -> None:
        self._log = log
        self._tables = tables
        self._dataset_id = dataset_id
        self._base = Base(None)

    def base(self) -> Base:
        """Return the newest version with its index; only files that are new since the last call are read."""
        record = self._log.latest()
        if record is None:
            return Base(None)
        if self._base.record is None or self._base.record.commit_id != record.commit_id:
            self._base = Base(record, tuple(self._tables.index(record)))
        return self._base

    def commit(self, change: Change) -> VersionRecord | None:
        """Make the version that `change` asks for and return its record.

        Returns the newest record, or `None` when there is none, where the change asks for nothing new.
        Raises `ConflictError` when the change cannot be, and the door's error where nothing can be stored.
        """
        return self.change(change).record

    def change(self, change: Change, expected: int | None = None, *, dry_run: bool = False) -> Outcome:
        """Make the version that `change` asks for, on the newest one, as `commit` does.

        With `expected` the change is refused by a `ConflictError` where another version than that is the
        newest, unless it asks for nothing new there; no version can come between the look and the commit.
        With `dry_run` nothing is stored: the newest record, and whether there would be another.
        """
        for _ in range(_MOST_RIVALS):
            base = self.base()
            draft = change.draft(base)
            if draft is None:
                return Outcome(base.record, changed=False)
            if expected is not None and expected != base.number:
                raise _stale(expected, base)
            if dry_run:
                return Outcome(base.record, changed=True)
            record, tables = self._stored(draft, base)
            there = self._log.propose(record)
            if there.commit_id == record.commit_id:
                self._base = Base(record, tables)
                self._log.point_at(record.number)
                return Outcome(record, changed=True)
        raise ConflictError(f"{_MOST_RIVALS} other commits were faster: try again when fewer drivers commit")

    def _stored(self, draft: Draft, base: Base) -> tuple[VersionRecord, tuple[IndexTable, ...]]:
        """Write the files of a draft and return its sealed record, with the tables of its index."""
        index = self._merged(draft)
        quarantine = self._quarantine(draft)
        files = tuple(file for file, _ in index)
        record = VersionRecord(
            number=base.number + 1,
            parent=base.record.number if base.record else None,
            parent_digest=base.record.digest if base.record else None,
            operation=draft.operation,
            commit_id=uuid.uuid4().hex,
            created_at=datetime.now(UTC),
            dataset_id=self._dataset_id,
            schema_fingerprint=draft.schema_fingerprint,
            run_id=draft.run_id,
            n_samples=sum(file.n_rows for file in files),
            n_tokens=sum(file.n_tokens for file in files),
            size_bytes=draft.size_bytes,
            index=files,
            quarantine=quarantine,
            n_quarantined=sum(file.n_rows for file in quarantine),
            splits=draft.splits,
            condemned=draft.condemned,
        )
        return record.sealed(), tuple(table for _, table in index)

    def _merged(self, draft: Draft) -> list[tuple[IndexFile, IndexTable]]:
        """Write the fresh tables, those that are merged with others as one file."""
        held: list[tuple[IndexFile | None, IndexTable]] = [*draft.kept, *((None, t) for t in draft.fresh)]
        index: list[tuple[IndexFile, IndexTable]] = []
        for group in merge_groups([len(table) for _, table in held]):
            members = [held[number] for number in group]
            file, table = members[0]
            if len(members) > 1:
                file, table = None, IndexTable.merged([table for _, table in members])
            index.append((file or self._tables.store_index(table), table))
        return index

    def _quarantine(self, draft: Draft) -> tuple[IndexFile, ...]:
        files = list(draft.quarantine)
        if not draft.quarantined:
            return tuple(files)
        sizes = [*(file.n_rows for file in files), len(draft.quarantined)]
        group = next(group for group in merge_groups(sizes) if len(files) in group)
        merging = [files[number] for number in group if number < len(files)]
        rows = [*self._tables.quarantine_rows(merging), *draft.quarantined]
        return (*(file for file in files if file not in merging), self._tables.store_quarantine(rows))


def _stale(expected: int, base: Base) -> ConflictError:
    made = f", made by {base.record.operation}" if base.record else ""
    problem = Problem(
        where="expected_version",
        kind="stale",
        message=f"expected version {expected} as the newest, got {base.number}{made}",
        repair=f"look at version {base.number} and ask again",
        expected=str(expected),
        got=str(base.number),
    )
    return ConflictError("the dataset was changed meanwhile", [problem])
