"""A version, to read: its samples never change, whatever is committed meanwhile."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.store.door import Door
from datagen.store.final_norms import read_final_norm
from datagen.store.index import Index, Location, Place
from datagen.store.index_table import IndexTable
from datagen.store.layout import Layout
from datagen.store.part_reader import PartReader, WhyGone, nobody_knows
from datagen.store.tables import Tables
from schemas.final_norm import FinalNorm
from schemas.records import QuarantinedSample, VersionRecord
from schemas.schema import Schema

_OPEN_PARTS = 128


@dataclass(frozen=True)
class Sample:
    """One sample, or a window of its tokens, as it is stored: unpadded, unshifted; t tokens, H the width.

    `tensors` are those asked for, by name, `[t, H]` in their own dtype; `tokens` every token column, `[t]`;
    `norms` the L2 norm of each row of every tensor of the schema, `[t]` float32. `n_tokens` is the whole
    sample's length.
    """

    sample_id: str
    prompt_id: str
    conversation_id: str
    n_tokens: int
    tensors: Mapping[str, NDArray[np.generic]]
    tokens: Mapping[str, NDArray[np.generic]]
    norms: Mapping[str, NDArray[np.float32]]


class Snapshot:
    """The samples of one version; immutable, and safe for threads.

    A dataset in ten lines::

        from datagen.store.dataset import Dataset
        from datagen.store.opening import open_door

        snapshot = Dataset.open(open_door("data"), "demo").snapshot()
        print(snapshot.version.number, len(snapshot), snapshot.schema.names)
        for sample_id in snapshot.sample_ids[:3]:
            sample = snapshot.read(sample_id, names=("layer2", "final"), tokens=slice(0, 64))
            final = sample.tensors["final"]  # [64, H] bfloat16, every block's checksum compared
            print(sample_id[:8], sample.n_tokens, final.shape, sample.norms["final"].max())
    """

    def __init__(
        self,
        door: Door,
        layout: Layout,
        version: VersionRecord,
        schema: Schema,
        tables: Sequence[IndexTable],
        why_gone: WhyGone = nobody_knows,
    ) -> None:
        self.version = version
        self.schema = schema
        self.index = Index(tables)
        self._door = door
        self._layout = layout
        self._why_gone = why_gone
        self.kept_norm: FinalNorm | None = None
        """The target's final norm, once `final_norm` has found one: it never changes then."""
        self._parts: OrderedDict[str, PartReader] = OrderedDict()
        self._lock = threading.Lock()

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

    def place(self, sample_id: str) -> Place:
        """Return where a sample's rows lie, for whoever needs no more of it; raises as `location`."""
        return self.index.place(sample_id)

    def conversation_of(self, sample_id: str) -> str:
        """Return the conversation that a sample is a piece of."""
        return self.index.locate(sample_id).conversation_id

    def quarantined(self) -> list[QuarantinedSample]:
        """Return every sample that was not made up to this version, with its reason."""
        return Tables(self._door, self._layout).quarantined(self.version)

    def final_norm(self) -> FinalNorm | None:
        """Return the target's final norm, which makes `final_normed` of `final`; `None` where none is kept.

        Raises `CorruptError` where it is damaged, or another target's.
        """
        if self.kept_norm is None:
            self.kept_norm = read_final_norm(self._door, self._layout, self.schema)
        return self.kept_norm

    def part(self, location: Location | Place) -> PartReader:
        """Return the reader of the part that a sample lies in; the last ones used are kept open."""
        with self._lock:
            reader = self._parts.get(location.part_id)
            if reader is None:
                reader = PartReader(
                    self._door,
                    self._layout.name,
                    location.part_id,
                    self.schema,
                    location.part_sha256,
                    self._why_gone,
                )
                self._parts[location.part_id] = reader
            self._parts.move_to_end(location.part_id)
            while len(self._parts) > _OPEN_PARTS:
                self._parts.popitem(last=False)
        return reader

    def read(
        self,
        sample_id: str,
        names: Sequence[str] | None = None,
        tokens: slice | None = None,
        *,
        check: bool = True,
    ) -> Sample:
        """Return a sample with the named tensors (all of them by default), or a window of its tokens.

        With `check` every 64-row block of a tensor that the window touches is compared with its crc32c; what
        is small is always checked. Raises `NotFoundError` when this version has no such sample, `SchemaError`
        when there is no such tensor, `IndexError` when the window leaves the sample, `GoneError` when gc
        swept its part, and `CorruptError` that names the file when bytes are missing, short or changed.
        """
        location = self.index.locate(sample_id)
        part = self.part(location)
        place = location.row_start, location.n_tokens
        wanted = self.schema.names if names is None else tuple(names)
        return Sample(
            sample_id=location.sample_id,
            prompt_id=location.prompt_id,
            conversation_id=location.conversation_id,
            n_tokens=location.n_tokens,
            tensors={name: part.read_tensor(*place, name, tokens, check=check) for name in wanted},
            tokens={
                column.name: part.read_tokens(*place, column.name, tokens)
                for column in self.schema.token_columns
            },
            norms={name: part.read_norms(*place, name, tokens) for name in self.schema.names},
        )
