"""A body as segments, read in pieces of whole blocks: nothing of a piece is handed out before all is checked.

A segment is bytes that are kept in memory, or a run of bytes of a sample's tensor that is still on disk. Any
cut of a body is segments again, so a byte range is read and checked like the whole: by the blocks it touches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.part_reader import PartReader

LOCAL_PIECE_BYTES = 2**20
"""Fits a core's cache: what was read is summed and sent from there. Twice as much was sent a third slower."""

REMOTE_PIECE_BYTES = 8 * 2**20
"""Of a bucket, where each piece is a request."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes in memory, checked where they were read."""

    data: NDArray[np.uint8]

    @property
    def n_bytes(self) -> int:
        """How many bytes these are."""
        return len(self.data)

    def cut(self, first: int, end: int) -> "Kept":
        """Return bytes `first` to `end` of these."""
        return Kept(self.data[first:end])

    def step(self, room: int) -> int:
        """Return how many bytes fit into `room`."""
        return min(room, len(self.data))

    def read_into(self, out: NDArray[np.uint8]) -> None:
        """Fill `out`, as long as this."""
        out[:] = self.data


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes `first` to `end` of the tensor `name` of the sample that lies at `row_start` of a part."""

    part: PartReader
    row_start: int
    n_tokens: int
    name: str
    block_bytes: int
    first: int
    end: int

    @property
    def n_bytes(self) -> int:
        """How many bytes these are."""
        return self.end - self.first

    def cut(self, first: int, end: int) -> "Stored":
        """Return bytes `first` to `end` of these."""
        at = self.first
        return Stored(
            self.part, self.row_start, self.n_tokens, self.name, self.block_bytes, at + first, at + end
        )

    def step(self, room: int) -> int:
        """Return how many bytes fit into `room`, up to the end of a block, so that none is read twice."""
        fitting = (self.first + room) // self.block_bytes * self.block_bytes
        return self.n_bytes if self.n_bytes <= room else max(0, fitting - self.first)

    def rest_of_block(self) -> int:
        """Return how many bytes there are up to the end of the first block."""
        return min(self.n_bytes, self.block_bytes - self.first % self.block_bytes)

    def read_into(self, out: NDArray[np.uint8]) -> None:
        """Fill `out`, as long as this; raises `CorruptError` that names what is damaged."""
        self.part.read_bytes(self.row_start, self.n_tokens, self.name, self.first, out)


Segment = Kept | Stored


class Piece(NamedTuple):
    """Consecutive bytes of a body that are read, checked and sent together."""

    segments: tuple[Segment, ...]
    n_bytes: int

    def read(self) -> memoryview:
        """Return the bytes, every block that they touch checked, in memory that nobody else has.

        It is never used again: a transport may keep it for as long as it likes. Raises `CorruptError` that
        names what is damaged, and `DoorError` where the place cannot be read.
        """
        out = np.empty(self.n_bytes, np.uint8)
        at = 0
        for segment in self.segments:
            segment.read_into(out[at : at + segment.n_bytes])
            at += segment.n_bytes
        return out.data


def clipped(segments: Iterable[Segment], first: int, end: int) -> Iterator[Segment]:
    """Yield bytes `first` to `end` of segments that lie end to end."""
    at = 0
    for segment in segments:
        low, high = max(first - at, 0), min(end - at, segment.n_bytes)
        if low < high:
            yield segment if high - low == segment.n_bytes else segment.cut(low, high)
        at += segment.n_bytes


def pieces(segments: Iterable[Segment], piece_bytes: int) -> Iterator[Piece]:
    """Yield pieces of up to `piece_bytes`, or of a block more than half of that where blocks are large.

    So the first piece holds more than a header, and what is checked before a response starts is its data too.
    """
    taken: list[Segment] = []
    n_bytes = 0
    for segment in segments:
        at = 0
        while at < segment.n_bytes:
            rest = segment.cut(at, segment.n_bytes) if at else segment
            n_taken = rest.step(piece_bytes - n_bytes)
            if isinstance(rest, Stored) and n_taken == 0 and n_bytes * 2 < piece_bytes:
                n_taken = rest.rest_of_block()
            if n_taken:
                taken.append(rest if n_taken == rest.n_bytes else rest.cut(0, n_taken))
                at += n_taken
                n_bytes += n_taken
            if n_bytes >= piece_bytes or not n_taken:
                yield Piece(tuple(taken), n_bytes)
                taken, n_bytes = [], 0
    if taken:
        yield Piece(tuple(taken), n_bytes)
