"""Two versions of a dataset, compared: which samples only one of them has, and what else differs.

Index files that both versions name are not opened: a comparison costs what differs.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.dataset import Dataset
from datagen.store.index_table import IndexTable, int_values
from schemas.problem import Problem
from schemas.records import IndexFile, VersionRecord
from service.errors import MalformedError
from service.served.changes import MAX_LISTED, Comparison, Listed
from service.served.management import facts_of, version_of

_CURSOR = re.compile(r"[0-9a-f]{64}")


class _Rows(NamedTuple):
    """Samples of index files, ascending by id: `[n]` ids, tokens, and part and row as one `[n, 56]` array."""

    ids: NDArray[np.bytes_]
    n_tokens: NDArray[np.int32]
    places: NDArray[np.uint8]


class Pages(NamedTuple):
    """Which samples a comparison lists: `limit` of each kind at most, after the cursors."""

    limit: int = 100
    added_cursor: str | None = None
    removed_cursor: str | None = None


def compare(dataset: Dataset, first: str, second: str, pages: Pages | None = None) -> Comparison:
    """Return what `second` has more, less and otherwise than `first`; each a number, a name or `latest`.

    Raises `NotFoundError` when there is no such version, `MalformedError` for a cursor that is none.
    """
    pages = pages or Pages()
    _check(pages)
    old, new = version_of(dataset, first), version_of(dataset, second)
    shared = {file.sha256 for file in old.index} & {file.sha256 for file in new.index}
    before, after = _rows(dataset, old, shared), _rows(dataset, new, shared)
    removed = ~np.isin(before.ids, after.ids, assume_unique=True)
    added = ~np.isin(after.ids, before.ids, assume_unique=True)
    remade = (before.places[~removed] != after.places[~added]).any(axis=1)
    return Comparison(
        dataset=dataset.name,
        first=facts_of(dataset, old),
        second=facts_of(dataset, new),
        added=_listed(after, added, pages.limit, pages.added_cursor),
        removed=_listed(before, removed, pages.limit, pages.removed_cursor),
        n_kept=old.n_samples - int(removed.sum()),
        n_remade=int(remade.sum()),
        same_schema=old.schema_fingerprint == new.schema_fingerprint,
        same_splits=old.splits == new.splits,
        runs=_runs(dataset, old.number, new.number),
        quarantined=_quarantined(dataset, old, new),
    )


def _check(pages: Pages) -> None:
    problems = []
    for name, cursor in (("added_cursor", pages.added_cursor), ("removed_cursor", pages.removed_cursor)):
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            message = f"expected a page's next_cursor, got {cursor[:80]!r}"
            problems.append(Problem(where=name, kind="cursor", message=message))
    if not 0 <= pages.limit <= MAX_LISTED:
        message = f"expected 0 to {MAX_LISTED}, got {pages.limit}"
        problems.append(Problem(where="limit", kind="limit", message=message))
    if problems:
        raise MalformedError("no such page", problems)


def _rows(dataset: Dataset, record: VersionRecord, shared: set[str]) -> _Rows:
    files = [file for file in record.index if file.sha256 not in shared]
    tables = dataset.tables.index_files(files)
    if not tables:
        return _Rows(np.zeros(0, "S32"), np.zeros(0, np.int32), np.zeros((0, 56), np.uint8))
    ids = np.concatenate([table.ids for table in tables])
    order = np.argsort(ids, kind="stable")
    lengths = np.concatenate([int_values(table.rows.column("n_tokens"), np.int32) for table in tables])
    return _Rows(ids[order], lengths[order], np.concatenate([_places(table) for table in tables])[order])


def _places(table: IndexTable) -> NDArray[np.uint8]:
    """Return `[n, 56]`: the part of each row, its record's digest, and the first row in it."""
    first_rows = int_values(table.rows.column("row_start"), np.int64).view(np.uint8).reshape(-1, 8)
    return np.concatenate([table.parts[table.part_numbers], first_rows], axis=1)


def _listed(rows: _Rows, chosen: NDArray[np.bool_], limit: int, cursor: str | None) -> Listed:
    ids = rows.ids[chosen]
    start = 0 if cursor is None else int(np.searchsorted(ids, bytes.fromhex(cursor), side="right"))
    page = [bytes(one).ljust(32, b"\0").hex() for one in ids[start : start + limit]]
    more = bool(page) and start + limit < len(ids)
    n_tokens = int(rows.n_tokens[chosen].sum(dtype=np.int64))
    return Listed(
        n_samples=len(ids),
        n_tokens=n_tokens,
        sample_ids=tuple(page),
        next_cursor=page[-1] if more else None,
    )


def _runs(dataset: Dataset, one: int, other: int) -> tuple[str, ...]:
    """Return the runs that committed after the older of two versions, up to the newer, in order."""
    numbers = range(min(one, other) + 1, max(one, other) + 1)
    runs = (dataset.version(number).run_id for number in numbers)
    return tuple(dict.fromkeys(run for run in runs if run is not None))


def _quarantined(dataset: Dataset, old: VersionRecord, new: VersionRecord) -> dict[str, int]:
    counts = _reasons(dataset, new.quarantine, old.quarantine)
    counts.subtract(_reasons(dataset, old.quarantine, new.quarantine))
    return {reason: count for reason, count in sorted(counts.items()) if count}


def _reasons(dataset: Dataset, files: Sequence[IndexFile], other: Sequence[IndexFile]) -> Counter[str]:
    """Return the reasons in the quarantine files that the other version does not name."""
    known = {file.sha256 for file in other}
    rows = dataset.tables.quarantine_rows([file for file in files if file.sha256 not in known])
    return Counter(row.reason for row in rows)
