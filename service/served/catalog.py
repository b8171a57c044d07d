"""Which datasets and versions are served: opened once, kept while they are used, safe for threads.

A version never changes, so an open snapshot is good for ever; only `latest` asks the storage anew.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence

from datagen.store.dataset import Dataset, Snapshot, dataset_names
from datagen.store.door import Door
from datagen.store.errors import CorruptError, DoorError, GoneError, NotFoundError
from datagen.store.layout import DATASET
from schemas.problem import Problem
from schemas.reference import version_problems

LATEST = "latest"
MAX_SNAPSHOTS = 64
_NUMBER = re.compile(r"[1-9][0-9]{0,7}")


def number_in(version: str) -> int | None:
    """Return the number that a version is written as, in the one way that it can be, or `None`.

    >>> number_in("12"), number_in("012"), number_in("latest")
    (12, None, None)
    """
    return int(version) if _NUMBER.fullmatch(version) else None


class Catalog:
    """The datasets behind a door; with `datasets` only those."""

    def __init__(
        self, door: Door, datasets: Sequence[str] | None = None, max_snapshots: int = MAX_SNAPSHOTS
    ) -> None:
        self.door = door
        self._only = None if datasets is None else sorted(datasets)
        self._max_snapshots = max_snapshots
        self._lock = threading.Lock()
        self._datasets: dict[str, Dataset] = {}
        self._snapshots: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()

    def names(self) -> list[str]:
        """Return the names of the datasets that are served, sorted."""
        if self._only is not None:
            return list(self._only)
        marker = self.door.local_path(DATASET)
        if marker is not None and not marker.parent.is_dir():
            problem = Problem(where="root", kind="root", message="expected a folder, got none: it is gone")
            raise DoorError("the root cannot be read", [problem])
        return dataset_names(self.door) or []

    def dataset(self, name: str) -> Dataset:
        """Return a dataset; raises `NotFoundError` when there is none of that name."""
        known = self._datasets.get(name)
        if known is not None:
            return known
        try:
            if self._only is not None and name not in self._only:
                raise NotFoundError(f"{name} is not served")
            opened = Dataset.open(self.door, name)
        except NotFoundError as error:
            # Not who is there: a key may be granted some of them only.
            problem = Problem(
                where="dataset",
                kind="dataset",
                message=f"expected a dataset that is served, got {name!r}",
                repair="GET /v1/datasets lists those that you may read",
            )
            raise NotFoundError("no such dataset", [problem]) from error
        return self._datasets.setdefault(name, opened)

    def number(self, name: str, version: str) -> int:
        """Return the number of a version: written `12`, `latest`, or as the name that it was given.

        Raises `NotFoundError` that says which versions there are.
        """
        dataset = self.dataset(name)
        if number := number_in(version):
            return number
        newest = dataset.log.newest()
        if version == LATEST and newest:
            return newest
        if version != LATEST and not version_problems(version):
            return dataset.names.read(version).number
        there = (
            f"a number from 1 to {newest}, `latest` or a version's name"
            if newest
            else "a version (nothing is committed)"
        )
        message = f"expected {there}, got {version!r}"
        problem = Problem(where="version", kind="version", message=message)
        raise NotFoundError(f"{name} has no such version", [problem])

    def open_snapshot(self, name: str, number: int) -> Snapshot | None:
        """Return a snapshot that is open already, or `None`; never touches the storage."""
        with self._lock:
            snapshot = self._snapshots.get((name, number))
            if snapshot is not None:
                self._snapshots.move_to_end((name, number))
        return snapshot

    def snapshot(self, name: str, number: int) -> Snapshot:
        """Return a version's reader.

        Raises `NotFoundError` that says which versions there are, and `CorruptError` when one is damaged.
        """
        snapshot = self.open_snapshot(name, number)
        if snapshot is not None:
            return snapshot
        dataset = self.dataset(name)
        dataset.version(number)
        try:
            opened = dataset.snapshot(number)
        except GoneError:
            raise
        except NotFoundError as error:
            # The record is there: what it names must be.
            raise CorruptError(f"{name}@{number} is damaged", error.problems) from error
        with self._lock:
            snapshot = self._snapshots.setdefault((name, number), opened)
            self._snapshots.move_to_end((name, number))
            while len(self._snapshots) > self._max_snapshots:
                self._snapshots.popitem(last=False)
        return snapshot
