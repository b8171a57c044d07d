"""What may be done to a dataset: each change is a new version, or a refusal that changes nothing.

The same for HTTP and for the console. A change that finds everything as it asks for changes nothing and says
so, so that a request may be sent again whatever became of its answer.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np

from datagen.store.dataset import Dataset, Snapshot
from datagen.store.errors import NotFoundError
from datagen.store.gc import Garbage, condemn, sweep
from datagen.store.index import Index
from datagen.store.index_table import ID_BYTES
from datagen.store.rewrite import Assign, Drop, Rollback
from datagen.store.splits import assign
from schemas.problem import Problem
from schemas.records import Operation, SplitRule, VersionName, VersionRecord
from schemas.reference import parse_version, version_name_problems
from schemas.split import rule_problems
from service.errors import MalformedError
from service.served.changes import (
    Collected,
    CondemnChange,
    DropChange,
    DropChanged,
    NameChange,
    Named,
    NameList,
    RollbackChange,
    RollbackChanged,
    ShareFound,
    SplitChange,
    SplitChanged,
    SweepChange,
    VersionFacts,
)

MAX_TOLD = 100
"""Of ids that are unknown, so many are named; of the others how many there are."""


def split(dataset: Dataset, asked: SplitChange) -> SplitChanged:
    """Set a split rule, and say what falls in each split.

    Raises `MalformedError` for a rule that cannot be, `RefusedError` for one that clashes with another.
    """
    rule = asked.as_rule()
    if problems := rule_problems([rule]):
        raise MalformedError("this split rule cannot be", problems)
    record, changed = dataset.change(Assign(rule, asked.only), asked.expected_version, dry_run=asked.dry_run)
    return SplitChanged(
        **_facts(dataset, record, "split", changed, asked.dry_run),
        rule=rule,
        shares=shares_of(dataset.snapshot(record.number), rule),
    )


def shares_of(snapshot: Snapshot, rule: SplitRule) -> tuple[ShareFound, ...]:
    """Return what of a version falls in each split of a rule and, last, in none."""
    return tuple(
        ShareFound(
            split=share.split,
            n_samples=share.n_samples,
            n_tokens=share.n_tokens,
            n_conversations=share.n_conversations,
        )
        for share in assign(snapshot.index, rule).shares(snapshot.index.lengths)
    )


def drop(dataset: Dataset, asked: DropChange) -> DropChanged:
    """Drop samples; those that a version before had, and the newest has no more, change nothing.

    Raises `NotFoundError` that names the samples, or conversations, that no version had.
    """
    snapshot = dataset.snapshot()
    ids, gone = _chosen(dataset, snapshot.index, asked)
    change = Drop(frozenset(ids), dataset.part_bytes)
    record, changed = dataset.change(change, asked.expected_version, dry_run=asked.dry_run)
    n_dropped = n_tokens = 0
    if changed and asked.dry_run:
        places = [snapshot.index.locate(sample_id) for sample_id in ids]
        n_dropped, n_tokens = len(places), sum(place.n_tokens for place in places)
    elif changed:
        before = dataset.version(record.number - 1)
        n_dropped, n_tokens = before.n_samples - record.n_samples, before.n_tokens - record.n_tokens
    return DropChanged(
        **_facts(dataset, record, "drop", changed, asked.dry_run),
        n_dropped=n_dropped,
        n_dropped_tokens=n_tokens,
        n_gone_before=gone,
    )


def rollback(dataset: Dataset, asked: RollbackChange) -> RollbackChanged:
    """List again what an older version lists; raises `ConflictError` when gc has condemned parts of it."""
    target = version_of(dataset, asked.version)
    change = Rollback(target, tuple(dataset.tables.index(target)))
    record, changed = dataset.change(change, asked.expected_version, dry_run=asked.dry_run)
    facts = _facts(dataset, record, "rollback", changed, asked.dry_run)
    return RollbackChanged(**facts, to_version=target.number)


def name(dataset: Dataset, asked: NameChange) -> Named:
    """Give a version a name; raises `AlreadyExistsError` that says which version has it already.

    Raises `MalformedError` when no version can be called so.
    """
    if problems := version_name_problems(asked.name):
        raise MalformedError(f"no version can be called {asked.name!r}", problems)
    record, changed = dataset.name_version(asked.name, version_of(dataset, asked.version or "latest").number)
    return _named(dataset, record, changed)


def names(dataset: Dataset) -> NameList:
    """Return every name of the dataset's versions."""
    found = (_named(dataset, record, False) for record in dataset.names.all())
    return NameList(dataset=dataset.name, names=tuple(found))


def gc_condemn(dataset: Dataset, asked: CondemnChange) -> Collected:
    """Condemn parts that no version needs that is kept; their bytes stay until they are swept."""
    record, garbage = condemn(
        dataset,
        keep_versions=asked.keep_versions,
        grace=timedelta(seconds=asked.grace_seconds),
        keep_named=asked.keep_named,
        expected=asked.expected_version,
        dry_run=asked.dry_run,
    )
    return _collected(dataset, record, garbage, "condemn", asked.dry_run)


def gc_sweep(dataset: Dataset, asked: SweepChange) -> Collected:
    """Remove the bytes of parts that were condemned longer than the grace period ago."""
    garbage = sweep(
        dataset,
        grace=timedelta(seconds=asked.grace_seconds),
        keep_named=asked.keep_named,
        dry_run=asked.dry_run,
    )
    return _collected(dataset, dataset.latest(), garbage, "sweep", asked.dry_run)


def versions(dataset: Dataset, newest: int | None = None) -> Iterator[VersionFacts]:
    """Yield the facts of the versions, the newest first; `newest` limits how many."""
    last = dataset.log.newest()
    given = _names_by_number(dataset)
    for number in range(last, 0 if newest is None else max(0, last - newest), -1):
        yield facts_of(dataset, dataset.version(number), given.get(number, ()))


def facts_of(dataset: Dataset, record: VersionRecord, given: tuple[str, ...] | None = None) -> VersionFacts:
    """Return a version in figures, with its names (read, where they are not `given`)."""
    known = _names_by_number(dataset).get(record.number, ()) if given is None else given
    same = {key: getattr(record, key) for key in VersionFacts.model_fields if hasattr(record, key)}
    condemned = len(dataset.condemned_parts(record))
    return VersionFacts(**same, names=known, n_condemned_parts=condemned)


def version_of(dataset: Dataset, text: str) -> VersionRecord:
    """Return the record of a version that is written as a number, a name, or `latest`.

    Raises `NotFoundError` that says which there are.
    """
    number = dataset.number(parse_version(text))
    return dataset.snapshot().version if number is None else dataset.version(number)


def _chosen(dataset: Dataset, index: Index, asked: DropChange) -> tuple[list[str], int]:
    """Return the ids to drop from the newest version, and how many of those asked for are gone already."""
    if asked.shorter_than is not None:
        short = np.flatnonzero(index.lengths < asked.shorter_than)
        return [index.sample_ids[int(position)] for position in short], 0
    if asked.sample_ids is not None:
        wanted = list(dict.fromkeys(asked.sample_ids))
        held = _samples_in(index, wanted)
        missing = sorted(set(wanted) - held)
        _refuse_unknown(dataset, missing, "sample", _samples_in)
        return sorted(held), len(missing)
    asked_for = set(asked.conversation_ids or ())
    column = _conversations(index)
    missing = sorted(asked_for - set(column))
    _refuse_unknown(dataset, missing, "conversation", _conversations_in)
    found = [index.sample_ids[at] for at, conversation in enumerate(column) if conversation in asked_for]
    return found, len(missing)


def _refuse_unknown(
    dataset: Dataset, missing: list[str], kind: str, held: Callable[[Index, list[str]], set[str]]
) -> None:
    """Raise `NotFoundError` for what no version had: what one had and the newest has not is gone already."""
    unknown = missing
    for number in range(dataset.log.newest(), 1, -1):
        if not unknown:
            return
        # Samples leave by these two only, so the version before such a one is where they last were.
        if dataset.version(number).operation in ("drop", "rollback"):
            before = Index(dataset.tables.index(dataset.version(number - 1)))
            unknown = sorted(set(unknown) - held(before, unknown))
    if unknown:
        message = f"expected a {kind} of the dataset, got one that no version has"
        problems = [Problem(where=one[:128], kind=kind, message=message) for one in unknown[:MAX_TOLD]]
        if len(unknown) > MAX_TOLD:
            more = f"expected {kind}s of the dataset, got {len(unknown) - MAX_TOLD} more that no version has"
            problems.append(Problem(where=f"{kind}s", kind=kind, message=more))
        raise NotFoundError("nothing is dropped", problems)


def _samples_in(index: Index, wanted: list[str]) -> set[str]:
    """Return which of sample ids an index has."""
    if not wanted:
        return set()
    ids = np.frombuffer(bytes.fromhex("".join(wanted)), f"S{ID_BYTES}")
    held = np.zeros(len(ids), np.bool_)
    for table in index.tables:
        held |= table.holds(ids)
    return {wanted[int(at)] for at in np.flatnonzero(held)}


def _conversations_in(index: Index, wanted: list[str]) -> set[str]:
    return set(_conversations(index)) & set(wanted)


def _conversations(index: Index) -> list[str]:
    return [str(text) for text in index.column("conversation_id").to_pylist()] if len(index) else []


def _facts(
    dataset: Dataset, record: VersionRecord, operation: Operation, changed: bool, dry_run: bool
) -> dict[str, object]:
    values = {"dataset": dataset.name, "operation": operation, "changed": changed, "dry_run": dry_run}
    same = {key: getattr(record, key) for key in ("n_samples", "n_tokens", "size_bytes")}
    return {**values, **same, "version": record.number}


def _named(dataset: Dataset, record: VersionName, changed: bool) -> Named:
    return Named(
        dataset=dataset.name,
        name=record.name,
        version=record.number,
        digest=record.digest,
        named_at=record.named_at,
        changed=changed,
    )


def _names_by_number(dataset: Dataset) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for record in dataset.names.all():
        found[record.number] = (*found.get(record.number, ()), record.name)
    return found


def _collected(
    dataset: Dataset, record: VersionRecord | None, garbage: Garbage, step: str, dry_run: bool
) -> Collected:
    assert record is not None  # gc refuses a dataset without a version
    return Collected.model_validate(
        {
            "dataset": dataset.name,
            "step": step,
            "changed": bool(garbage.parts or garbage.litter),
            "dry_run": dry_run,
            "version": record.number,
            "size_bytes": garbage.size_bytes,
            "parts": garbage.parts,
            "litter": garbage.litter,
            "left": garbage.left,
        }
    )
