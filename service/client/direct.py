"""Direct mode: files that locations name, read where they lie; what they should hold is told beside them.

Bytes go from the file into the buffer by `preadv`, and each block of 64 rows is summed while it lies in the
processor's cache. A file that is gone, short or changed is an error with its part's name, never zeros.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
from awscrt import checksums
from numpy.typing import NDArray

from schemas.problem import Problem
from service.client.body import Asked, rows_of
from service.client.errors import ClientError, DamagedError, InvalidError, ProtocolError
from service.client.rows import BITS, Out, Rows, buffer_of
from service.client.stack import Planes
from service.wire.locations import ArrayLocation, SampleLocation

PIECE_BYTES = 2**20
"""Read and summed at once, in whole blocks, one block at least."""

STACKED_BYTES = 2**19
"""Read at once where bytes go on from the cache into a stack."""

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


class Known(NamedTuple):
    """Where a sample's arrays lie, by name, as checked against the schema."""

    sample_id: str
    n_tokens: int
    arrays: dict[str, ArrayLocation]

    @classmethod
    def of(cls, location: SampleLocation, asked: Asked) -> Self:
        """Return what a location says; raises `ProtocolError` where it contradicts the schema or itself."""
        arrays = {array.name: array for array in location.arrays if array.name in asked.shapes}
        problems = [
            Problem(where=name, kind="location", message="expected a location, got none")
            for name in asked.names
            if name not in arrays
        ]
        for array in arrays.values():
            shape = asked.shapes[array.name]
            length = location.n_tokens * shape.row_bytes
            n_blocks = -(-length // max(array.block_bytes, 1))
            expected = (shape.dtype, (location.n_tokens, *shape.tail), length, array.offset, n_blocks)
            got = (array.dtype, array.shape, array.length, array.block_offset, len(array.blocks))
            if got != expected:
                message = f"expected dtype, shape, bytes, first block and blocks {expected}, got {got}"
                problems.append(Problem(where=array.name, kind="location", message=message))
        if problems:
            raise ProtocolError("a location is not of what was asked for", problems)
        return cls(location.sample_id, location.n_tokens, arrays)


class DirectReader:
    """Reads samples by their locations; safe for threads and for forked children, which share descriptors."""

    def __init__(self, *, check: bool) -> None:
        self._check = check
        self._open = lru_cache(OPEN_FILES)(OpenFile)

    def can_read(self, known: Known) -> bool:
        """Whether each file of a sample can be opened here, and is as long as it should be."""
        try:
            return all(
                array.path is not None and self._open(array.path).size_bytes == array.size_bytes
                for array in known.arrays.values()
            )
        except OSError:
            return False

    def read(self, asked: Asked, known: Sequence[Known], out: Out) -> Rows:
        """Return the rows that were asked for, from the files that samples lie in, in the order asked.

        Raises `DamagedError` with everything that is gone, short or changed, `InvalidError` when the window
        leaves the sample, and `ClientError` when the service tells no paths.
        """
        spans = [_span(asked.tokens, sample.n_tokens) for sample in known]
        starts = [0, *accumulate(end - first for first, end in spans)]
        shapes = asked.shapes
        buffer = buffer_of(out, starts[-1] * sum(shapes[name].row_bytes for name in asked.names))
        problems: list[Problem] = []
        arrays, at = {}, 0
        # Larger items first, so that every array is aligned to its own.
        for name in sorted(asked.names, key=lambda name: -BITS[shapes[name].dtype].itemsize):
            shape = shapes[name]
            size = shape.row_bytes
            flat = buffer[at : at + starts[-1] * size]
            at += len(flat)
            for number, (first, end) in enumerate(spans):
                rows = flat[starts[number] * size : starts[number + 1] * size]
                problems += self._fill(known[number].arrays[name], first * size, end * size, rows)
            arrays[name] = flat.view(BITS[shape.dtype]).reshape(starts[-1], *shape.tail)
        _refuse(problems)
        return rows_of(asked, np.array(starts, np.int64), arrays, buffer)

    def read_planes(self, known: Known, planes: Planes) -> None:
        """Fill the planes with a whole sample's arrays, block by block; raises as `read`."""
        problems: list[Problem] = []
        scratch = np.empty(0, np.uint8)
        for name, plane in planes.items():
            array = known.arrays[name]
            n_bytes = min(_whole_blocks(STACKED_BYTES, array), array.length)
            if len(scratch) < n_bytes:
                scratch = np.empty(n_bytes, np.uint8)
            try:
                problems += _read_plane(self._file(array), array, plane, scratch[:n_bytes], self._check)
            except (OSError, EOFError) as error:
                problems.append(_unread(array, error))
        _refuse(problems)

    def _fill(self, array: ArrayLocation, first: int, end: int, rows: NDArray[np.uint8]) -> Sequence[Problem]:
        """Fill `rows` with bytes `first` to `end` of an array; return what is wrong with them."""
        try:
            file = self._file(array)
            if self._check:
                return _read_blocks(file, array, first, end, rows)
            _read(file, array.offset + first, rows)
        except (OSError, EOFError) as error:
            return [_unread(array, error)]
        return ()

    def _file(self, array: ArrayLocation) -> OpenFile:
        if array.path is None:
            raise _no_paths()
        return self._open(array.path)


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        parts = ", ".join(dict.fromkeys(problem.where.partition("/")[0] for problem in problems))
        raise DamagedError(f"part {parts} is damaged", problems)


def _unread(array: ArrayLocation, error: OSError | EOFError) -> Problem:
    """Return the problem of a file that is gone or short: one like any other."""
    if isinstance(error, EOFError):
        message = f"expected {array.size_bytes} bytes, got a file that {error}"
        return _problem(array, "short", message)
    message = f"expected to read {array.path}, got: {error.strerror or error}"
    return _problem(array, "missing", message)


def _whole_blocks(n_bytes: int, array: ArrayLocation) -> int:
    """Return how many bytes are read at once: whole blocks of about as many bytes, one at least."""
    block_bytes = max(array.block_bytes, 1)
    return max(1, n_bytes // block_bytes) * block_bytes


def _read_plane(
    file: OpenFile, array: ArrayLocation, plane: NDArray[np.uint8], scratch: NDArray[np.uint8], check: bool
) -> list[Problem]:
    """Read a whole array, as much at once as `scratch` takes.

    Each piece is summed and put in its place while it lies in the processor's cache.
    """
    problems: list[Problem] = []
    row_bytes, length, step = plane.shape[1], array.length, len(scratch)
    for start in range(0, length, step):
        piece = scratch[: length - start]
        _read(file, array.offset + start, piece)
        if check:
            problems += _changed_blocks(array, start, piece)
        first = start // row_bytes
        plane[first : first + len(piece) // row_bytes] = piece.reshape(-1, row_bytes)
    return problems


def _read_blocks(
    file: OpenFile, array: ArrayLocation, first: int, end: int, rows: NDArray[np.uint8]
) -> list[Problem]:
    """Read the whole blocks that `first` to `end` touch; those that jut out are read aside and trimmed."""
    problems: list[Problem] = []
    size, step = max(array.block_bytes, 1), _whole_blocks(PIECE_BYTES, array)
    for start in range(first // size * size, end, step):
        stop = min(start + step, -(-end // size) * size, array.length)
        inside = start >= first and stop <= end
        piece = rows[start - first : stop - first] if inside else np.empty(stop - start, np.uint8)
        _read(file, array.offset + start, piece)
        problems += _changed_blocks(array, start, piece)
        if not inside:
            low, high = max(start, first), min(stop, end)
            rows[low - first : high - first] = piece[low - start : high - start]
    return problems


def _read(file: OpenFile, offset: int, rows: NDArray[np.uint8]) -> None:
    left = rows.data
    while len(left):
        n_read = os.preadv(file.fd, [left], offset)
        if n_read == 0:
            raise EOFError(f"ends at byte {offset}")
        left, offset = left[n_read:], offset + n_read


def _changed_blocks(array: ArrayLocation, start: int, piece: NDArray[np.uint8]) -> list[Problem]:
    """Sum whole blocks, from byte `start` of an array on; return those that changed."""
    size = max(array.block_bytes, 1)
    sums = [checksums.crc32c(piece[at : at + size]) for at in range(0, len(piece), size)]
    first = start // size
    wanted = array.blocks[first : first + len(sums)]
    if wanted == tuple(sums):
        return []
    return [
        _problem(array, "crc32c", f"block {block}: expected crc32c {expected:#010x}, got {got:#010x}")
        for block, (expected, got) in enumerate(zip(wanted, sums, strict=True), first)
        if got != expected
    ]


def _no_paths() -> ClientError:
    message = "expected paths of files, got URLs: the dataset lies in a bucket"
    repair = 'leave direct mode to the client (`direct="auto"`)'
    problem = Problem(where="locations", kind="direct", message=message, repair=repair)
    return ClientError("nothing can be read directly", [problem])


def _span(window: slice | None, n_tokens: int) -> tuple[int, int]:
    if window is None:
        return 0, n_tokens
    first, end = window.start or 0, n_tokens if window.stop is None else window.stop
    if not 0 <= first < end <= n_tokens:
        message = f"expected a window within the {n_tokens} tokens of the sample, got {first}:{end}"
        problem = Problem(where="tokens", kind="window", message=message)
        raise InvalidError("the window leaves the sample", [problem], status=416)
    return first, end


def _problem(array: ArrayLocation, kind: str, message: str) -> Problem:
    return Problem(
        where=f"{array.part_id}/{array.name}",
        kind=kind,
        message=message,
        repair="take a version that still has this part, or restore its files",
    )
