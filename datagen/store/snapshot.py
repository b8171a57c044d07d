"""A version, to read: its samples never change, whatever is committed meanwhile.

>>> import tempfile
>>> from datagen.store.local import LocalDoor
>>> from datagen.store.dataset import Dataset
"""

from collections.abc import Sequence

from datagen.store.door import Door
from datagen.store.index import Index, Location
from datagen.store.index_table import IndexTable
from datagen.store.layout import Layout
from datagen.store.tables import Tables
from schemas.records import QuarantinedSample, VersionRecord
from schemas.schema import Schema


class Snapshot:
    """The samples of one version; immutable, and safe for threads."""

    def __init__(
        self, door: Door, layout: Layout, version: VersionRecord, schema: Schema, tables: Sequence[IndexTable]
    ) -> None:
        self.version = version
        self.schema = schema
        self.index = Index(tables)
        self._door = door
        self._layout = layout

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self.index

    @property
    def sample_ids(self) -> Sequence[str]:
        """Every sample id in order, 64 hex digits each."""
        return self.index.sample_ids

    def location(self, sample_id: str) -> Location:
        """Return where a sample lies; raises `NotFoundError` when this version has no such sample."""
        return self.index.locate(sample_id)

    def conversation_of(self, sample_id: str) -> str:
        """Return the conversation that a sample is a piece of."""
        return self.index.locate(sample_id).conversation_id

    def quarantined(self) -> list[QuarantinedSample]:
        """Return every sample that was not made up to this version, with its reason."""
        return Tables(self._door, self._layout).quarantined(self.version)
