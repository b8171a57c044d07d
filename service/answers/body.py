"""The plan of a body: what it will hold and the crc32c of each tensor, known before its first byte is sent.

The checksum of whole blocks is combined from those that were written with them. Only where a window cuts a
block are bytes read beforehand, checked, trimmed and summed anew.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import bytes_of, combine, crc32c
from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.index import Location
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.record import canonical_json
from schemas.records import BLOCK_ROWS
from schemas.schema import TensorSpec
from service.answers.pieces import Kept, Segment, Stored
from service.wire.frame import Entry, build_frame
from service.wire.names import (
    CRC32C_HEADER,
    DTYPE_HEADER,
    MEDIA_TYPES,
    OFFSETS,
    SAMPLE_IDS,
    SHAPE_HEADER,
    TensorFormat,
    crc32c_text,
    shape_text,
)

KEEP_BYTES = 4 * 2**20
"""Of the cut blocks that were read beforehand so much is kept; what is over is read and checked again."""


@dataclass(frozen=True)
class Body:
    """The bytes of a response: `segments` end to end, `size` in all."""

    segments: tuple[Segment, ...]
    size: int
    etag: str
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Rows(NamedTuple):
    """Tokens `first` to `end` of a sample."""

    location: Location
    first: int
    end: int


@dataclass
class _Planned:
    """An entry while its samples are added: its segments and the checksum of their bytes."""

    entry: Entry
    segments: list[Segment] = field(default_factory=list)
    crc32c: int = 0

    def keep(self, data: NDArray[np.uint8]) -> None:
        """Add bytes in memory."""
        self.add(Kept(data), crc32c(data))

    def add(self, segment: Segment, checksum: int) -> None:
        """Add a segment whose checksum is known."""
        self.segments.append(segment)
        self.crc32c = combine(self.crc32c, checksum, segment.n_bytes)


class Planner:
    """Plans one body of a version's samples; it reads what is small, and the cut blocks of a window.

    Its methods raise `CorruptError` that names the part where what they read is missing or changed.
    """

    def __init__(self, snapshot: Snapshot, metadata: Mapping[str, str]) -> None:
        self._snapshot = snapshot
        self._schema = snapshot.schema
        self._metadata = metadata
        self._columns = {column.name: column.dtype for column in self._schema.token_columns}
        self._keep = KEEP_BYTES

    def sample(self, rows: Rows, names: Sequence[str], form: TensorFormat) -> Body:
        """Return the body of one sample: the named tensors and token columns; `raw` takes exactly one."""
        planned = [self._entry([rows], name) for name in names]
        identity = [rows.location.sample_id, rows.first, rows.end, list(names), form]
        if form == "raw":
            (one,) = planned
            headers = {
                DTYPE_HEADER: one.entry.dtype,
                SHAPE_HEADER: shape_text(one.entry.shape),
                CRC32C_HEADER: crc32c_text(one.crc32c),
            }
            etag = self._etag(identity, b"")
            return Body(tuple(one.segments), one.entry.n_bytes, etag, MEDIA_TYPES["raw"], headers)
        metadata = {"sample_id": rows.location.sample_id, "tokens": f"{rows.first}:{rows.end}"}
        return self._framed(planned, metadata, identity)

    def batch(self, locations: Sequence[Location], names: Sequence[str]) -> Body:
        """Return the body of several samples end to end, with their offsets and ids."""
        rows = [Rows(location, 0, location.n_tokens) for location in locations]
        planned = [self._entry(rows, name) for name in names]
        lengths = [location.n_tokens for location in locations]
        offsets = _Planned(Entry(OFFSETS, "int64", (len(rows) + 1,)))
        offsets.keep(bytes_of(np.cumsum([0, *lengths], dtype=np.int64)))
        ids = _Planned(Entry(SAMPLE_IDS, "uint8", (len(rows), 32)))
        ids.keep(np.frombuffer(bytes.fromhex("".join(one.sample_id for one in locations)), np.uint8))
        identity = [[location.sample_id for location in locations], list(names)]
        return self._framed([offsets, *planned, ids], {}, identity)

    def _framed(
        self, planned: list[_Planned], metadata: Mapping[str, str], identity: Sequence[object]
    ) -> Body:
        found = {one.entry.name: one for one in planned}
        checksums = {name: one.crc32c for name, one in found.items()}
        frame = build_frame((one.entry for one in planned), checksums, {**self._metadata, **metadata})
        segments: list[Segment] = [Kept(np.frombuffer(frame.head, np.uint8))]
        for entry in frame.entries:
            segments += found[entry.name].segments
        etag = self._etag(identity, frame.head)
        return Body(tuple(segments), frame.size, etag, MEDIA_TYPES["safetensors"])

    def _etag(self, identity: Sequence[object], head: bytes) -> str:
        """Return a strong ETag: of the version's digest, of what is asked of it, and of the head."""
        said = canonical_json([self._snapshot.version.digest, *identity])
        return f'"{hashlib.sha256(said + head).hexdigest()[:32]}"'

    def _entry(self, rows: Sequence[Rows], name: str) -> _Planned:
        n_tokens = sum(one.end - one.first for one in rows)
        if name in self._columns:
            planned = _Planned(Entry(name, self._columns[name], (n_tokens,)))
            for one in rows:
                with _must_be_there(one.location):
                    planned.keep(self._column(one, name))
            return planned
        spec = self._schema.tensor(name)
        planned = _Planned(Entry(name, spec.dtype, (n_tokens, spec.width)))
        for one in rows:
            with _must_be_there(one.location):
                self._add_tensor(planned, one, spec)
        return planned

    def _column(self, rows: Rows, name: str) -> NDArray[np.uint8]:
        place = rows.location.row_start, rows.location.n_tokens
        values = self._snapshot.part(rows.location).read_tokens(*place, name, slice(rows.first, rows.end))
        return bytes_of(np.ascontiguousarray(values))

    def _add_tensor(self, planned: _Planned, rows: Rows, spec: TensorSpec) -> None:
        """Add the rows of one sample: a cut block, whole blocks, a cut block; any of them may be missing."""
        location = rows.location
        part = self._snapshot.part(location)
        block_bytes, size = BLOCK_ROWS * spec.row_bytes, location.n_tokens * spec.row_bytes
        first, end = rows.first * spec.row_bytes, rows.end * spec.row_bytes
        stored = Stored(part, location.row_start, location.n_tokens, spec.name, block_bytes, first, end)
        whole_from = min(-(-first // block_bytes) * block_bytes, end)
        whole_to = end if end == size else max(end // block_bytes * block_bytes, whole_from)
        if whole_from > first:
            self._add_cut(planned, stored.cut(0, whole_from - first))
        if whole_from < whole_to:
            checksum = 0
            blocks = part.block_checksums(location.row_start, location.n_tokens, spec.name)
            for start in range(whole_from, whole_to, block_bytes):
                n_bytes = min(block_bytes, whole_to - start)
                checksum = combine(checksum, int(blocks[start // block_bytes]), n_bytes)
            planned.add(stored.cut(whole_from - first, whole_to - first), checksum)
        if whole_to < end:
            self._add_cut(planned, stored.cut(whole_to - first, end - first))

    def _add_cut(self, planned: _Planned, stored: Stored) -> None:
        """Add a piece of a block: its checksum is nowhere, so it is read now."""
        data = np.empty(stored.n_bytes, np.uint8)
        stored.read_into(data)
        keeps = len(data) <= self._keep
        self._keep -= len(data) if keeps else 0
        planned.add(Kept(data) if keeps else stored, crc32c(data))


def n_bytes_of(snapshot: Snapshot, names: Sequence[str], n_tokens: int) -> int:
    """Return how many bytes the named tensors and token columns of so many tokens are."""
    schema = snapshot.schema
    row_bytes = {spec.name: spec.row_bytes for spec in schema.tensors}
    row_bytes |= {column.name: column.row_bytes for column in schema.token_columns}
    return n_tokens * sum(row_bytes[name] for name in names)


@contextmanager
def _must_be_there(location: Location) -> Iterator[None]:
    """Tell what is missing of a part that a version names as damage."""
    try:
        yield
    except NotFoundError as error:
        problems = error.problems or (
            Problem(where=f"parts/{location.part_id}", kind="gone", message=str(error)),
        )
        raise CorruptError(f"part {location.part_id} cannot be read", problems) from error
