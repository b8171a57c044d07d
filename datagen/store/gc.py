"""Garbage, in two steps: a version condemns parts, and only after a grace period are they removed.

The condemning version is what makes the removal safe: whoever commits sees it first, and a committer that
holds a condemned part fails. What a named version has is left alone, by both steps, unless one is told not
to: a name may be given while a condemnation is under way. Version records stay, and index and quarantine
files too: one whose name is the hash of its content may be named again by a commit that is under way.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from datagen.store.commit import Base, Draft
from datagen.store.dataset import Dataset
from datagen.store.door import Entry
from datagen.store.errors import ConflictError, NotFoundError
from datagen.store.keys import is_litter
from datagen.store.record_files import read_record
from schemas.problem import Problem
from schemas.records import CondemnedPart, PartRecord, VersionRecord


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
    dataset: Dataset,
    *,
    keep_versions: int,
    grace: timedelta,
    keep_named: bool = True,
    expected: int | None = None,
    dry_run: bool = False,
) -> tuple[VersionRecord | None, Garbage]:
    """Condemn every part that none of the newest `keep_versions` versions names; return the new version.

    Parts of versions that have a name are left too, unless `keep_named` is false. A part that no version at
    all names is condemned when it is older than `grace`: a run may be about to commit it. Returns the newest
    version where there is nothing to condemn, or in a dry run. Raises `ConflictError` when the newest version
    is not the `expected` one, and there is something to condemn.
    """
    if keep_versions < 1:
        raise ValueError(f"expected to keep at least the newest version, got keep_versions={keep_versions}")
    base = dataset.committer.base()
    if base.record is None:
        raise NotFoundError(f"{dataset.name} has no version yet: nothing can be condemned")
    keep = _Kept(dataset, keep_versions, keep_named)
    kept = keep.parts(base)
    committed = _Kept(dataset, base.number, False).parts(base)
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
    change = _Condemn(tuple(CondemnedPart(part_id=part_id, condemned_at=now) for part_id in chosen), keep)
    record = dataset.committer.change(change, expected).record
    done = {part.part_id for part in record.condemned} & set(chosen) if record else set()
    return record, replace(
        garbage, parts=tuple(sorted(done)), size_bytes=sum(chosen[part_id] for part_id in done)
    )


def sweep(dataset: Dataset, *, grace: timedelta, keep_named: bool = True, dry_run: bool = False) -> Garbage:
    """Remove the parts condemned longer than `grace` ago, and litter of killed writers as old as that.

    Parts that a version with a name has are left, and told, unless `keep_named` is false. Raises
    `ConflictError` when the newest version names a condemned part: then nothing is removed.
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
    holders = _holders(dataset, due) if keep_named else {}
    left = [_held(dataset, part_id, holders[part_id]) for part_id in sorted(holders)]
    doomed = {
        part_id: entries for part_id, entries in _parts(dataset) if part_id in due and part_id not in holders
    }
    litter = [
        entry
        for entry in dataset.door.entries(dataset.name)
        if is_litter(entry.key)
        and not entry.key.startswith(f"{dataset.layout.parts}/")
        and entry.written_at <= before
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
    return Garbage(tuple(doomed), tuple(entry.key for entry in litter), size, tuple(left))


@dataclass(frozen=True)
class _Kept:
    """What stays: parts of the newest `n_versions` versions and, with `named`, of all that have a name."""

    dataset: Dataset
    n_versions: int
    named: bool

    def parts(self, base: Base) -> set[str]:
        """Return the ids of the parts, `base` the newest version."""
        used = {part.part_id for table in base.tables for part in table.part_references()}
        numbers = set(range(max(1, base.number - self.n_versions + 1), base.number))
        if self.named:
            numbers |= {name.number for name in self.dataset.names.all()}
        for number in sorted(numbers - {base.number}):
            used |= set(_parts_of(self.dataset, number))
        return used


@dataclass(frozen=True)
class _Condemn:
    """Condemn parts, those left out that a kept version names by now."""

    parts: tuple[CondemnedPart, ...]
    kept: _Kept

    def draft(self, base: Base) -> Draft | None:
        if base.record is None:
            return None
        spared = self.kept.parts(base) | {part.part_id for part in base.condemned}
        parts = tuple(part for part in self.parts if part.part_id not in spared)
        if not parts:
            return None
        draft = Draft.carried_over(base.record, base.tables, "condemn")
        return replace(draft, condemned=(*base.condemned, *parts))


def _parts_of(dataset: Dataset, number: int) -> Iterator[str]:
    """Yield the ids of the parts that a version names."""
    for table in dataset.tables.index(dataset.version(number)):
        yield from (part.part_id for part in table.part_references())


def _holders(dataset: Dataset, due: Collection[str]) -> dict[str, str]:
    """Return which of the parts that are `due` a version with a name has, and that name."""
    names = dataset.names.all()
    return {part: name.name for name in names for part in _parts_of(dataset, name.number) if part in due}


def _held(dataset: Dataset, part_id: str, name: str) -> Problem:
    message = f"expected a part that no version with a name has, got one of {name!r}"
    repair = "sweep named versions too, if that name's samples may go"
    where = dataset.layout.part(part_id)
    return Problem(where=where, kind="named", message=message, repair=repair, severity="note")


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
    if all(entry.written_at <= before for entry in entries):
        return None
    return "unfinished, and written to within the grace period: a run may be at work on it"
