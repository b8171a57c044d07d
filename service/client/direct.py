"""Direct mode: files that locations name, read where they lie; what they should hold is told beside them.

Bytes go from the file into the buffer by `preadv`, and each block of 64 rows is summed while it lies in the
processor's cache. A file that is gone, short or changed is an error with its part's name, never zeros.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from awscrt import checksums
from numpy.typing import NDArray

from schemas.problem import Problem
from schemas.schema import ITEM_BYTES
from service.client.body import Asked, rows_of
from service.client.errors import ClientError, DamagedError, InvalidError, ProtocolError
from service.client.rows import BITS, Out, Rows, buffer_of
from service.wire.frame import Entry, aligned
from service.wire.locations import ArrayLocation, SampleLocation

PIECE_BYTES = 2**20
"""Read and summed at once, in whole blocks, one block at least."""

OPEN_FILES = 128


class OpenFile:
    """A file kept open for reading; closed when nobody holds it any longer."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self.fd).st_size

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class DirectReader:
    """Reads samples by their locations; safe for threads and for forked children, which share descriptors."""

    def __init__(self, *, check: bool) -> None:
        self._check = check
        self._open = lru_cache(OPEN_FILES)(OpenFile)

    def can_read(self, location: SampleLocation) -> bool:
        """Whether each file of a sample can be opened here, and is as long as it should be."""
        try:
            return all(
                array.path is not None and self._open(array.path).size_bytes == array.size_bytes
                for array in location.arrays
            )
        except OSError:
            return False

    def read(self, asked: Asked, locations: Sequence[SampleLocation], out: Out) -> Rows:
        """Return the rows that were asked for, from the files of `locations`, one a sample.

        Raises `DamagedError` with everything that is gone, short or changed, `InvalidError` when the window
        leaves the sample, and `ClientError` when the service tells no paths.
        """
        _need_paths(locations)
        spans = [_span(asked.tokens, location) for location in locations]
        offsets = np.cumsum([0, *(end - first for first, end in spans)], dtype=np.int64)
        n_tokens = int(offsets[-1])
        entries = []
        for name in asked.names:
            dtype, tail = asked.shape(name)
            entries.append(Entry(name, dtype, (n_tokens, *tail)))
        buffer = buffer_of(out, sum(entry.n_bytes for entry in entries))
        by_name = [{array.name: array for array in location.arrays} for location in locations]
        problems: list[Problem] = []
        arrays, at = {}, 0
        for entry in aligned(entries):
            flat = buffer[at : at + entry.n_bytes]
            at += entry.n_bytes
            row_bytes = _row_bytes(entry)
            for number, (first, end) in enumerate(spans):
                array = by_name[number][entry.name]
                _expect(array, entry, locations[number].n_tokens)
                rows = flat[int(offsets[number]) * row_bytes : int(offsets[number + 1]) * row_bytes]
                problems += self._fill(array, first * row_bytes, end * row_bytes, rows)
            arrays[entry.name] = flat.view(BITS[entry.dtype]).reshape(entry.shape)
        if problems:
            parts = ", ".join(dict.fromkeys(problem.where.partition("/")[0] for problem in problems))
            raise DamagedError(f"part {parts} is damaged", problems)
        return rows_of(asked, offsets, arrays, buffer)

    def _fill(self, array: ArrayLocation, first: int, end: int, rows: NDArray[np.uint8]) -> Iterator[Problem]:
        """Fill `rows` with bytes `first` to `end` of an array; yield what is wrong with them."""
        try:
            file = self._open(str(array.path))
            if not self._check:
                _read(file, array.offset + first, rows)
            else:
                yield from _read_blocks(file, array, first, end, rows)
        except OSError as error:
            yield _problem(array, "missing", f"expected to read {array.path}, got: {error.strerror or error}")
        except EOFError as error:
            yield _problem(array, "short", f"expected {array.size_bytes} bytes, got a file that {error}")


def _read_blocks(
    file: OpenFile, array: ArrayLocation, first: int, end: int, rows: NDArray[np.uint8]
) -> Iterator[Problem]:
    """Read the whole blocks that `first` to `end` touch; those that jut out are read aside and trimmed."""
    size = max(array.block_bytes, 1)
    step = max(1, PIECE_BYTES // size) * size
    for start in range(first // size * size, end, step):
        stop = min(start + step, -(-end // size) * size, array.length)
        inside = start >= first and stop <= end
        piece = rows[start - first : stop - first] if inside else np.empty(stop - start, np.uint8)
        _read(file, array.offset + start, piece)
        for at in range(0, len(piece), size):
            block = (start + at) // size
            got, expected = checksums.crc32c(piece[at : at + size]), array.blocks[block]
            if got != expected:
                message = f"block {block}: expected crc32c {expected:#010x}, got {got:#010x}"
                yield _problem(array, "crc32c", message)
        if not inside:
            low, high = max(start, first), min(stop, end)
            rows[low - first : high - first] = piece[low - start : high - start]


def _read(file: OpenFile, offset: int, rows: NDArray[np.uint8]) -> None:
    done, view = 0, rows.data
    while done < len(rows):
        n_read = os.preadv(file.fd, [view[done:]], offset + done)
        if n_read == 0:
            raise EOFError(f"ends at byte {offset + done}")
        done += n_read


def _need_paths(locations: Sequence[SampleLocation]) -> None:
    if all(array.path is not None for location in locations for array in location.arrays):
        return
    message = "expected paths of files, got URLs: the dataset lies in a bucket"
    repair = 'leave direct mode to the client (`direct="auto"`)'
    problem = Problem(where="locations", kind="direct", message=message, repair=repair)
    raise ClientError("nothing can be read directly", [problem])


def _span(window: slice | None, location: SampleLocation) -> tuple[int, int]:
    n_tokens = location.n_tokens
    first = (window.start or 0) if window is not None else 0
    end = n_tokens if window is None or window.stop is None else window.stop
    if not 0 <= first < end <= n_tokens:
        message = f"expected a window within the {n_tokens} tokens of the sample, got {first}:{end}"
        problem = Problem(where="tokens", kind="window", message=message)
        raise InvalidError("the window leaves the sample", [problem], status=416)
    return first, end


def _row_bytes(entry: Entry) -> int:
    width = entry.shape[1] if len(entry.shape) > 1 else 1
    return width * ITEM_BYTES[entry.dtype]


def _expect(array: ArrayLocation, entry: Entry, n_tokens: int) -> None:
    """Raise `ProtocolError` where a location contradicts the schema or itself."""
    length = n_tokens * _row_bytes(entry)
    n_blocks = -(-length // max(array.block_bytes, 1))
    got = array.dtype, array.shape, array.length, array.block_offset, len(array.blocks)
    expected = entry.dtype, (n_tokens, *entry.shape[1:]), length, array.offset, n_blocks
    if got != expected:
        message = f"expected dtype, shape, bytes, first block and blocks {expected}, got {got}"
        problem = Problem(where=array.name, kind="location", message=message)
        raise ProtocolError("a location is not of what was asked for", [problem])


def _problem(array: ArrayLocation, kind: str, message: str) -> Problem:
    return Problem(
        where=f"{array.part_id}/{array.name}",
        kind=kind,
        message=message,
        repair="take a version that still has this part, or restore its files",
    )
