"""Garbage, in two steps: a version condemns parts, and only after a grace period are they removed.

The condemning version is what makes the removal safe: whoever commits sees it first, and a committer that
holds a condemned part fails. Version records stay, and index and quarantine files too: one whose name is the
hash of its content may be named again by a commit that is under way.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from datagen.store.commit import Base, Draft
from datagen.store.dataset import Dataset
from datagen.store.door import Entry
from datagen.store.errors import ConflictError, NotFoundError
from datagen.store.index_table import IndexTable
from datagen.store.keys import is_litter
from datagen.store.record_files import read_record
from schemas.problem import Problem
from schemas.records import CondemnedPart, PartRecord, VersionRecord

TablesOf = Callable[[int], list[IndexTable]]


@dataclass(frozen=True)
class Garbage:
    """What one step of gc took, or in a dry run would take.

    `parts` are part ids, `litter` keys of other files; `left` says why what looks like garbage was left.
    """

    parts: tuple[str, ...]
    litter: tuple[str, ...]
    size_bytes: int
    left: tuple[Problem, ...] = ()


def condemn(
    dataset: Dataset, *, keep_versions: int, grace: timedelta, dry_run: bool = False
) -> tuple[VersionRecord | None, Garbage]:
    """Condemn every part that none of the newest `keep_versions` versions names; return the new version.

    A part that no version at all names is condemned when it is older than `grace`: a run may be about to
    commit it. Returns the newest version where there is nothing to condemn, or in a dry run.
    """
    if keep_versions < 1:
        raise ValueError(f"expected to keep at least the newest version, got keep_versions={keep_versions}")
    base = dataset.committer.base()
    if base.record is None:
        raise NotFoundError(f"{dataset.name} has no version yet: nothing can be condemned")
    kept = _used(base, keep_versions, lambda number: dataset.tables.index(dataset.version(number)))
    committed = _used(base, base.number, lambda number: dataset.tables.index(dataset.version(number)))
    condemned = {part.part_id for part in base.condemned}
    now = datetime.now(UTC)
    chosen: dict[str, int] = {}
    left: list[Problem] = []
    for part_id, entries in _parts(dataset):
        if part_id in kept or part_id in condemned:
            continue
        reason = None if part_id in committed else _too_young(dataset, part_id, entries, now - grace)
        if reason is None:
            chosen[part_id] = sum(entry.size_bytes for entry in entries)
        else:
            where = dataset.layout.part(part_id)
            left.append(Problem(where=where, kind="left", message=reason, severity="note"))
    garbage = Garbage(tuple(chosen), (), sum(chosen.values()), tuple(left))
    if dry_run or not chosen:
        return base.record, garbage
    change = _Condemn(
        tuple(CondemnedPart(part_id=part_id, condemned_at=now) for part_id in chosen),
        keep_versions,
        lambda number: dataset.tables.index(dataset.version(number)),
    )
    record = dataset.committer.commit(change)
    done = {part.part_id for part in record.condemned} & set(chosen) if record else set()
    return record, replace(
        garbage, parts=tuple(sorted(done)), size_bytes=sum(chosen[part_id] for part_id in done)
    )


def sweep(dataset: Dataset, *, grace: timedelta, dry_run: bool = False) -> Garbage:
    """Remove the parts condemned longer than `grace` ago, and litter of killed writers as old as that.

    Raises `ConflictError` when the newest version names a condemned part: then nothing is removed.
    """
    base = dataset.committer.base()
    if base.record is None:
        raise NotFoundError(f"{dataset.name} has no version yet: nothing is condemned")
    before = datetime.now(UTC) - grace
    due = {part.part_id for part in base.condemned if part.condemned_at <= before}
    named = sorted(due & {part.part_id for table in base.tables for part in table.part_references()})
    if named:
        message = f"expected no condemned part in version {base.number}, got this one"
        where = dataset.layout.part
        problems = [Problem(where=where(part), kind="condemned", message=message) for part in named]
        raise ConflictError("nothing is swept: run verify", problems)
    doomed = {part_id: entries for part_id, entries in _parts(dataset) if part_id in due}
    litter = [
        entry
        for entry in dataset.door.entries(dataset.name)
        if is_litter(entry.key)
        and not entry.key.startswith(f"{dataset.layout.parts}/")
        and _is_older(dataset, entry.key, before)
    ]
    size = sum(entry.size_bytes for entries in (*doomed.values(), litter) for entry in entries)
    if not dry_run:
        for part_id, entries in doomed.items():
            # Without its record a part is none, so one that a kill leaves half removed is taken for nothing.
            dataset.door.delete(dataset.layout.part_record(part_id))
            for entry in entries:
                dataset.door.delete(entry.key)
        for entry in litter:
            dataset.door.delete(entry.key)
    return Garbage(tuple(doomed), tuple(entry.key for entry in litter), size)


@dataclass(frozen=True)
class _Condemn:
    """Condemn parts, those left out that a kept version names by now."""

    parts: tuple[CondemnedPart, ...]
    keep_versions: int
    tables_of: TablesOf

    def draft(self, base: Base) -> Draft | None:
        if base.record is None:
            return None
        spared = _used(base, self.keep_versions, self.tables_of)
        spared |= {part.part_id for part in base.condemned}
        parts = tuple(part for part in self.parts if part.part_id not in spared)
        if not parts:
            return None
        draft = Draft.carried_over(base.record, base.tables, "condemn")
        return replace(draft, condemned=(*base.condemned, *parts))


def _used(base: Base, n_versions: int, tables_of: TablesOf) -> set[str]:
    """Return the parts that the newest `n_versions` versions name, `base` the newest of them."""
    used = {part.part_id for table in base.tables for part in table.part_references()}
    for number in range(max(1, base.number - n_versions + 1), base.number):
        used |= {part.part_id for table in tables_of(number) for part in table.part_references()}
    return used


def _parts(dataset: Dataset) -> Iterator[tuple[str, list[Entry]]]:
    """Yield every part's folder that is there, by id, with its files."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in dataset.door.entries(dataset.layout.parts):
        part_id = entry.key.removeprefix(f"{dataset.layout.parts}/").split("/")[0]
        found[part_id].append(entry)
    yield from sorted(found.items())


def _too_young(dataset: Dataset, part_id: str, entries: list[Entry], before: datetime) -> str | None:
    """Return why a part that no version names is left, or `None`."""
    key = dataset.layout.part_record(part_id)
    if any(entry.key == key for entry in entries):
        made = read_record(PartRecord, dataset.door, key).created_at
        return None if made <= before else f"closed at {made:%Y-%m-%d %H:%M}: a run may be about to commit it"
    if any(dataset.door.local_path(entry.key) is None for entry in entries):
        return "unfinished, of unknown age: remove it by hand when no run is active"
    if all(_is_older(dataset, entry.key, before) for entry in entries):
        return None
    return "unfinished, and written to within the grace period: a run may be at work on it"


def _is_older(dataset: Dataset, key: str, before: datetime) -> bool:
    """Say whether a file was last written before a time; where nobody knows, it was not."""
    path = dataset.door.local_path(key)
    if path is None:
        return False
    try:
        return path.stat().st_mtime <= before.timestamp()
    except FileNotFoundError:
        return False
