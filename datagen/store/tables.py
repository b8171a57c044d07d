"""The index and quarantine files of versions, read once each: content-hashed files never change.

Tables are shared by every snapshot and commit that names them, and let go when nobody does.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

import pyarrow as pa

from datagen.store import quarantine
from datagen.store.door import Door
from datagen.store.errors import AlreadyExistsError
from datagen.store.index_table import IndexTable
from datagen.store.layout import Layout
from schemas.records import IndexFile, QuarantinedSample, VersionRecord

_READERS = 8


class Tables:
    """Reads and stores the content-hashed files of one dataset; safe for threads."""

    def __init__(self, door: Door, layout: Layout) -> None:
        self._door = door
        self._layout = layout
        self._held: WeakValueDictionary[str, IndexTable] = WeakValueDictionary()
        self._failures: dict[str, frozenset[quarantine.Key]] = {}

    def index(self, record: VersionRecord) -> list[IndexTable]:
        """Return the tables of a version's index files, in its order.

        Raises `NotFoundError` or `CorruptError` that names the first file that is missing or changed.
        """
        return self.index_files(record.index)

    def index_files(self, files: Sequence[IndexFile]) -> list[IndexTable]:
        """Return the tables of index files, reading those that are not held."""
        held = [self._held.get(file.sha256) for file in files]
        missing = [file for file, table in zip(files, held, strict=True) if table is None]
        read = self._read_all(missing)
        fresh = iter(read)
        return [next(fresh) if table is None else table for table in held]

    def store_index(self, table: IndexTable) -> IndexFile:
        """Write an index file, durable, and return its entry."""
        data, file = table.encode()
        self._create(self._layout.index(file.sha256), data)
        self._held[file.sha256] = table
        return file

    def quarantined(self, record: VersionRecord) -> list[QuarantinedSample]:
        """Return every sample that was not made up to a version."""
        return self.quarantine_rows(record.quarantine)

    def quarantine_rows(self, files: Iterable[IndexFile]) -> list[QuarantinedSample]:
        """Return the rows of quarantine files.

        Raises `NotFoundError` or `CorruptError` that names the first file that is missing or changed.
        """
        found: list[QuarantinedSample] = []
        for file in files:
            key = self._layout.quarantine(file.sha256)
            found += quarantine.decode(self._door.read(key), file, key)
        return found

    def quarantine_keys(self, record: VersionRecord) -> set[quarantine.Key]:
        """Return what failed up to a version and how; each file is read once."""
        for file in record.quarantine:
            if file.sha256 not in self._failures:
                self._note(file, self.quarantine_rows([file]))
        return set().union(*(self._failures[file.sha256] for file in record.quarantine))

    def store_quarantine(self, samples: Sequence[QuarantinedSample]) -> IndexFile:
        """Write a quarantine file, durable, and return its entry."""
        data, file = quarantine.encode(samples)
        self._create(self._layout.quarantine(file.sha256), data)
        self._note(file, samples)
        return file

    def _note(self, file: IndexFile, samples: Sequence[QuarantinedSample]) -> None:
        self._failures[file.sha256] = frozenset(quarantine.key_of(sample) for sample in samples)

    def _read_all(self, files: Sequence[IndexFile]) -> list[IndexTable]:
        is_local = self._door.local_path(self._layout.latest) is not None
        if len(files) < 2 or is_local:
            # A folder answers at once, and threads would each keep memory of their own.
            read = [self._read(file) for file in files]
        else:
            with ThreadPoolExecutor(_READERS) as pool:
                read = list(pool.map(self._read, files))
        pa.default_memory_pool().release_unused()
        return read

    def _read(self, file: IndexFile) -> IndexTable:
        key = self._layout.index(file.sha256)
        table = IndexTable.decode(self._door.read(key), file, key)
        return self._held.setdefault(file.sha256, table)

    def _create(self, key: str, data: bytes) -> None:
        try:
            self._door.create(key, data)
        except AlreadyExistsError:
            # The name is the content's hash: the same file, whose writer may not have synced it yet.
            self._door.settle([key])
