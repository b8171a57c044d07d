"""What a file format of another library is to an export: large files over samples, small files beside them.

A format says which files it needs, how large they are, and yields their bytes; who writes, hashes, resumes
and renames is `datagen.export`, the same for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datagen.store.index import Location
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.wiring import Wiring


class Row(NamedTuple):
    """A sample at its place in an export, counted from 0."""

    number: int
    location: Location


class PlannedFile(NamedTuple):
    """A file that holds some samples' tensors: its path in the export, its samples, its exact size."""

    path: str
    rows: tuple[Row, ...]
    size_bytes: int


@dataclass(frozen=True)
class Source:
    """What the samples are read from, and the wiring that they are exported in.

    Both readers raise `CorruptError` where stored bytes are not those that were committed.
    """

    snapshot: Snapshot
    wiring: Wiring

    @property
    def schema(self) -> Schema:
        """The dataset's."""
        return self.snapshot.schema

    def tensor(self, row: Row, name: str, first: int, end: int) -> NDArray[np.generic]:
        """Return `[end - first, H]` rows of a sample's tensor, every block's checksum compared."""
        at = row.location
        part = self.snapshot.part(at)
        return part.read_tensor(at.row_start, at.n_tokens, name, slice(first, end))

    def tokens(self, row: Row, name: str) -> NDArray[np.generic]:
        """Return a sample's token column, `[T]`."""
        at = row.location
        return self.snapshot.part(at).read_tokens(at.row_start, at.n_tokens, name)


class ExportFormat(Protocol):
    """One file format, as its own library reads it."""

    name: str
    """As `--format` says it."""
    trainer: str
    """`NAME==VERSION` of the consumer whose declared wiring it is made for."""

    def problems(self, source: Source) -> Iterator[Problem]:
        """Yield what of the dataset the format has no way to hold; the wiring is judged before."""
        ...

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        """Return the large files, with their exact sizes."""
        ...

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        """Yield a file's bytes, a few MiB at a time."""
        ...

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        """Write the small files into `folder`, over what lies there, and return their paths in it."""
        ...

    def beside_bytes(self, rows: Sequence[Row]) -> int:
        """Return about how many bytes those take."""
        ...

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:
        """Return the command that trains on the export, its first `n_train` rows for training."""
        ...
