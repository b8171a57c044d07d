"""One Zarr shard, written as a stream: the C-order tensor, zeros up to 64 rows, then the index.

The shard of an uncompressed `[T, H]` array whose inner chunks are 64 whole rows *is* the tensor's bytes with
an index behind them: an (offset, length) pair of uint64 a chunk and a crc32c of these pairs. So it needs no
more memory than the rows in hand, and any token range is one byte range.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import bytes_of, crc32c
from datagen.store.damage import damage
from datagen.store.door import Door, KeyWriter
from datagen.store.errors import CorruptError, NotFoundError
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS

SHARD = "c/0/0"


class ShardSize(NamedTuple):
    """Bytes of a finished shard: its rows alone, and the whole file."""

    payload_bytes: int
    size_bytes: int


def shard_index(n_rows: int, row_bytes: int) -> bytes:
    """Return the index that stands behind `n_rows` rows.

    >>> len(shard_index(65, 16))
    36
    """
    chunk_bytes = BLOCK_ROWS * row_bytes
    pairs = np.empty((_n_chunks(n_rows), 2), "<u8")
    pairs[:, 0] = np.arange(len(pairs), dtype=np.uint64) * np.uint64(chunk_bytes)
    pairs[:, 1] = chunk_bytes
    packed = pairs.tobytes()
    return packed + crc32c(packed).to_bytes(4, "little")


def shard_size(n_rows: int, row_bytes: int) -> ShardSize:
    """Return what a shard of `n_rows` rows takes, without writing one."""
    n_chunks = _n_chunks(n_rows)
    return ShardSize(n_rows * row_bytes, n_chunks * BLOCK_ROWS * row_bytes + 16 * n_chunks + 4)


def shard_problems(door: Door, key: str, n_rows: int, row_bytes: int) -> list[Problem]:
    """Return what is wrong with a shard's length and index: contiguous chunks, nothing before or between."""
    expected = shard_index(n_rows, row_bytes)
    size = shard_size(n_rows, row_bytes).size_bytes
    try:
        found_size = door.size(key)
        if found_size != size:
            return [damage(key, "size", f"expected {size} bytes, got {found_size}")]
        found = np.empty(len(expected), np.uint8)
        door.read_into(key, size - len(expected), found)
    except (NotFoundError, CorruptError) as error:
        return list(error.problems)
    if found.tobytes() != expected:
        return [damage(key, "shard_index", f"expected {n_rows} rows end to end, got another index")]
    return []


class ShardWriter:
    """Writes one shard; rows go in as they come, the buffer may be reused after each call."""

    def __init__(self, writer: KeyWriter, row_bytes: int) -> None:
        self._writer = writer
        self._row_bytes = row_bytes
        self.n_rows = 0

    @classmethod
    def open(cls, door: Door, key: str, row_bytes: int) -> Self:
        """Open the shard of a tensor with rows of `row_bytes` bytes."""
        return cls(door.open_writer(key), row_bytes)

    def append(self, rows: NDArray[np.generic]) -> None:
        """Write C-contiguous rows `[t, H]` of the tensor's dtype."""
        flat = bytes_of(rows)
        self._writer.write(flat.data)
        self.n_rows += len(flat) // self._row_bytes

    def finish(self) -> ShardSize:
        """Write the padding and the index, and close; the bytes are durable then."""
        size = shard_size(self.n_rows, self._row_bytes)
        padding = -self.n_rows % BLOCK_ROWS * self._row_bytes
        self._writer.write(bytes(padding) + shard_index(self.n_rows, self._row_bytes))
        self._writer.close()
        return size

    def abort(self) -> None:
        """Give up and remove what was written."""
        self._writer.abort()


def _n_chunks(n_rows: int) -> int:
    return -(-n_rows // BLOCK_ROWS)
