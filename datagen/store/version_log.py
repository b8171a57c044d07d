"""The versions of a dataset: a contiguous chain of records, each created once.

Nobody lists: a reader starts at the `latest` hint and probes forward. And "who won?": neither "already
exists" nor any other error says whether a record was stored, so after any doubt it is read back and its
`commit_id` compared.
"""

import logging
import time

from datagen.store.damage import corrupt
from datagen.store.door import Door
from datagen.store.errors import NotFoundError, StoreError
from datagen.store.layout import Layout
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.records import VersionRecord

_LOG = logging.getLogger(__name__)
_TRIES = 6
_FIRST_WAIT_SECONDS = 0.02
_REPAIR = "restore it from a copy: without it this version and its numbering cannot be trusted"


class VersionLog:
    """The version records of one dataset behind a door; safe for threads."""

    def __init__(self, door: Door, layout: Layout, dataset_id: str) -> None:
        self._door = door
        self._layout = layout
        self._dataset_id = dataset_id
        self._known: dict[int, VersionRecord] = {}

    def newest(self) -> int:
        """Return the number of the newest version, 0 when there is none yet."""
        low = self.hint()
        if low and not self._there(low):
            low = 0
        step = 1
        while self._there(low + step):
            low += step
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._there(middle) else (low, middle)
        return low

    def latest(self) -> VersionRecord | None:
        """Return the newest version's record, or `None` before the first commit."""
        number = self.newest()
        return self.read(number) if number else None

    def read(self, number: int) -> VersionRecord:
        """Return a version's record, its digest, number and place in the chain checked.

        Raises `NotFoundError` that says which versions there are, and `CorruptError` when it is changed.
        """
        if number in self._known:
            return self._known[number]
        try:
            record = self.read_back(number)
        except NotFoundError as error:
            newest = self.newest()
            there = f"version 1 to {newest}" if newest else "a dataset with a version (nothing is committed)"
            problem = Problem(where="version", kind="version", message=f"expected {there}, got {number}")
            raise NotFoundError(f"{self._layout.name} has no version {number}", [problem]) from error
        self._known[number] = record
        return record

    def read_back(self, number: int) -> VersionRecord:
        """Return what is stored under a number now; raises `NotFoundError` when nothing is."""
        key = self._layout.version(number)
        data = self._door.read(key)
        try:
            record = VersionRecord.from_json(data, key)
        except RecordError as error:
            raise corrupt(key, "record", f"expected a version record, got: {error}", _REPAIR) from error
        facts = {
            "digest": (record.content_digest(), record.digest),
            "number": (number, record.number),
            "parent": (number - 1 or None, record.parent),
            "dataset_id": (self._dataset_id, record.dataset_id),
        }
        for what, (expected, got) in facts.items():
            if expected != got:
                raise corrupt(key, what, f"expected {what} {expected}, got {got}", _REPAIR)
        return record

    def propose(self, record: VersionRecord) -> VersionRecord:
        """Store a sealed record under its number, durable, and return whose record is there now.

        The caller has won when that has its own `commit_id`. Raises the door's error when the record can
        after several tries neither be stored nor be read back.
        """
        key, data = self._layout.version(record.number), record.to_json()
        for attempt in range(_TRIES):
            try:
                self._door.create(key, data)
            except StoreError as error:
                doubt = error
            else:
                return record
            try:
                return self._settled(key, record.number)
            except NotFoundError:
                pass  # nothing is stored: try the same number again, and tell why it was not
            except StoreError as error:
                doubt = error
            time.sleep(_FIRST_WAIT_SECONDS * 2**attempt)
        raise doubt

    def point_at(self, number: int) -> None:
        """Move the `latest` hint; that it fails costs a few probes and is logged."""
        try:
            self._door.put_hint(self._layout.latest, b"%d\n" % number)
        except StoreError as error:
            _LOG.warning("%s: the hint of version %d was not written: %s", self._layout.name, number, error)

    def _settled(self, key: str, number: int) -> VersionRecord:
        record = self.read_back(number)
        # Its creator may have been killed, or refused, between the link and the sync of the folder.
        self._door.settle([key])
        return record

    def _there(self, number: int) -> bool:
        return number in self._known or self._door.exists(self._layout.version(number))

    def hint(self) -> int:
        """Return the number that `latest` holds, 0 when it holds none."""
        try:
            text = self._door.read(self._layout.latest)
        except NotFoundError:
            return 0
        return int(text) if text.strip().isdigit() and len(text) <= 9 else 0
