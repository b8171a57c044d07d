"""A body of tensors, received: its head believed if it is what was asked for, bytes if their checksum fits.

Bytes go from the socket into one buffer, the caller's or a new one, and are summed while they lie in the
processor's cache.
"""

import http.client
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from awscrt import checksums
from numpy.typing import NDArray

from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.schema import Schema
from service.client.errors import ProtocolError
from service.client.rows import BITS, Out, Rows, buffer_of
from service.client.stack import MakePlanes
from service.client.transport import CutError
from service.wire.frame import PREFIX_BYTES, Entry, Frame, head_bytes, parse_frame
from service.wire.names import DATASET_HEADER, OFFSETS, SAMPLE_IDS, SCHEMA_HEADER, VERSION_HEADER

PIECE_BYTES = 256 * 2**10
"""Received and summed at once: small enough to stay in the cache, large enough to cost few calls."""

ID_BYTES = 32


class Shape(NamedTuple):
    """An array's dtype, what its shape ends with after the tokens, and the bytes of one token's row."""

    dtype: str
    tail: tuple[int, ...]
    row_bytes: int
    is_column: bool


def shapes_of(schema: Schema) -> dict[str, Shape]:
    """Return the shape of every tensor and token column, by name."""
    found = {spec.name: Shape(spec.dtype, (spec.width,), spec.row_bytes, False) for spec in schema.tensors}
    return found | {
        column.name: Shape(column.dtype, (), column.row_bytes, True) for column in schema.token_columns
    }


class Asked(NamedTuple):
    """What was asked for, which an answer must be: of one sample without offsets, or of several with them."""

    dataset: str
    number: int
    fingerprint: str
    shapes: Mapping[str, Shape]
    sample_ids: tuple[str, ...]
    names: tuple[str, ...]
    tokens: slice | None = None
    is_batch: bool = False


class WrongBytesError(Exception):
    """Bytes of some arrays are not those of their checksum."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(", ".join(problem.where for problem in problems))
        self.problems = tuple(problems)


def receive(answer: http.client.HTTPResponse, asked: Asked, out: Out, *, check: bool) -> Rows:
    """Read an answer into `out`.

    Raises `ProtocolError` when it is not what was asked for, `CutError` when it ends early, and with `check`
    `WrongBytesError` that names every array whose bytes changed on the way.
    """
    frame, n_tokens = _opened(answer, asked)
    buffer = buffer_of(out, frame.size - len(frame.head))
    wrong = _fill(answer, frame, buffer, check=check)
    if wrong:
        raise WrongBytesError(wrong)
    return _rows(frame, asked, buffer, n_tokens)


def receive_planes(
    answer: http.client.HTTPResponse, asked: Asked, makers: Sequence[MakePlanes], *, check: bool
) -> None:
    """Read an answer of whole samples, each into the planes that its maker makes of its length.

    Raises as `receive`.
    """
    frame, n_tokens = _opened(answer, asked)
    offsets = np.array([0, n_tokens], np.int64)
    entries = list(frame.entries)
    if asked.is_batch:
        offsets = _read_small(answer, frame, entries.pop(0), OFFSETS).view("<i8").reshape(-1)
        _check_offsets(asked, offsets, n_tokens)
    planes = [make(int(n)) for make, n in zip(makers, np.diff(offsets), strict=True)]
    scratch = np.empty(max(PIECE_BYTES, *(plane.shape[1] for plane in planes[0].values())), np.uint8)
    wrong = []
    for entry in entries:
        if asked.is_batch and entry.name == SAMPLE_IDS:
            _check_ids(asked, _read_small(answer, frame, entry, SAMPLE_IDS))
            continue
        value = 0
        for sample in planes:
            value = _fill_plane(answer, sample[entry.name], scratch, value, check=check)
        if check and value != frame.checksums[entry.name]:
            wrong.append(_wrong_bytes(entry.name, frame.checksums[entry.name], value))
    if wrong:
        raise WrongBytesError(wrong)


def _fill_plane(
    answer: http.client.HTTPResponse,
    plane: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    value: int,
    *,
    check: bool,
) -> int:
    """Fill a plane by way of `scratch`; return the crc32c of what `value` is of followed by its bytes."""
    n_tokens, row_bytes = plane.shape
    step = len(scratch) // row_bytes
    for first in range(0, n_tokens, step):
        rows = min(step, n_tokens - first)
        piece = scratch[: rows * row_bytes]
        _read_whole(answer, piece)
        if check:
            value = checksums.crc32c(piece, value)
        plane[first : first + rows] = piece.reshape(rows, row_bytes)
    return value


def _read_small(answer: http.client.HTTPResponse, frame: Frame, entry: Entry, name: str) -> NDArray[np.uint8]:
    """Read the entry `name`, `[n, bytes of a row]`, which is gone by before the rest is: always checked."""
    if entry.name != name:
        raise ProtocolError(f"expected {name} to come here, got {entry.name}")
    rows = np.empty((entry.shape[0], entry.n_bytes // entry.shape[0]), np.uint8)
    _read_whole(answer, rows.reshape(-1))
    if (value := checksums.crc32c(rows.reshape(-1))) != frame.checksums[name]:
        raise WrongBytesError([_wrong_bytes(name, frame.checksums[name], value)])
    return rows


def _read_whole(answer: http.client.HTTPResponse, piece: NDArray[np.uint8]) -> None:
    view, done = piece.data, 0
    while done < len(piece):
        n_read = answer.readinto(view[done:])
        if n_read == 0:
            raise CutError(f"{done} of {len(piece)} bytes of a piece")
        done += n_read


def _wrong_bytes(name: str, expected: int, value: int) -> Problem:
    message = f"expected crc32c {expected:#010x}, got {value:#010x}"
    return Problem(where=name, kind="crc32c", message=message)


def receive_table(
    answer: http.client.HTTPResponse, columns: Mapping[str, tuple[str, tuple[int, ...]]]
) -> dict[str, NDArray[np.generic]]:
    """Read an answer of columns of equal length: `columns` says each dtype, and what its shape ends with.

    Raises as `receive`.
    """
    size = answer.length
    if size is None:
        raise ProtocolError("expected an answer with a Content-Length, got none")
    frame = _frame(answer, size)
    n = frame.entries[0].shape[0] if frame.entries and frame.entries[0].shape else 0
    expected = {name: Entry(name, dtype, (n, *tail)) for name, (dtype, tail) in columns.items()}
    found = {entry.name: entry for entry in frame.entries}
    if found != expected or frame.size != size:
        told = ", ".join(f"{name}: {_told(entry)}" for name, entry in found.items())
        raise ProtocolError(f"expected the columns {', '.join(columns)} in {size} bytes, got {told}")
    buffer = np.empty(size - len(frame.head), np.uint8)
    if wrong := _fill(answer, frame, buffer, check=True):
        raise WrongBytesError(wrong)
    return _arrays(frame, buffer)


def _opened(answer: http.client.HTTPResponse, asked: Asked) -> tuple[Frame, int]:
    """Return the frame and how many rows each array has; raises `ProtocolError` for another answer."""
    size = answer.length
    if size is None:
        raise ProtocolError("expected an answer with a Content-Length, got none")
    _of_version(answer, asked)
    frame = _frame(answer, size)
    if frame.size != size:
        raise ProtocolError(f"expected {frame.size} bytes by the header, got Content-Length {size}")
    return frame, _n_tokens(frame, asked)


def _of_version(answer: http.client.HTTPResponse, asked: Asked) -> None:
    expected = {
        DATASET_HEADER: asked.dataset,
        VERSION_HEADER: str(asked.number),
        SCHEMA_HEADER: asked.fingerprint,
    }
    wrong = [
        Problem(where=name, kind="version", message=f"expected {value}, got {answer.headers.get(name)}")
        for name, value in expected.items()
        if answer.headers.get(name) != value
    ]
    if wrong:
        raise ProtocolError("the answer is of another version", wrong)


def _frame(answer: http.client.HTTPResponse, size: int) -> Frame:
    try:
        prefix = _exactly(answer, PREFIX_BYTES)
        length = head_bytes(prefix)
        if length > size:
            raise ProtocolError(f"expected a header within {size} bytes, got one of {length}")
        return parse_frame(prefix + _exactly(answer, length - PREFIX_BYTES))
    except RecordError as error:
        raise ProtocolError(error.headline, error.problems) from error


def _exactly(answer: http.client.HTTPResponse, n_bytes: int) -> bytes:
    data = answer.read(n_bytes)
    if len(data) < n_bytes:
        raise CutError(f"{len(data)} of {n_bytes} bytes of the header")
    return data


def _n_tokens(frame: Frame, asked: Asked) -> int:
    """Return how many rows each array has; raises `ProtocolError` when it is not what was asked for."""
    found = {entry.name: entry for entry in frame.entries}
    counts = [entry.shape[0] for name, entry in found.items() if name in asked.names and entry.shape]
    n_tokens = counts[0] if counts else 0
    if asked.tokens is not None and asked.tokens.stop is not None:
        n_tokens = asked.tokens.stop - (asked.tokens.start or 0)
    expected = {}
    for name in asked.names:
        shape = asked.shapes[name]
        expected[name] = Entry(name, shape.dtype, (n_tokens, *shape.tail))
    if asked.is_batch:
        n = len(asked.sample_ids)
        expected[OFFSETS] = Entry(OFFSETS, "int64", (n + 1,))
        expected[SAMPLE_IDS] = Entry(SAMPLE_IDS, "uint8", (n, ID_BYTES))
    problems = [
        Problem(where=name, kind="frame", message=f"expected {_told(expected.get(name))}, got {_told(got)}")
        for name in [*expected, *(name for name in found if name not in expected)]
        if (got := found.get(name)) != expected.get(name)
    ]
    if problems:
        raise ProtocolError("the answer is not what was asked for", problems)
    return n_tokens


def _told(entry: Entry | None) -> str:
    return "no such entry" if entry is None else f"{entry.dtype} {list(entry.shape)}"


def _fill(
    answer: http.client.HTTPResponse, frame: Frame, buffer: NDArray[np.uint8], *, check: bool
) -> list[Problem]:
    """Fill `buffer` with the entries' bytes; return what is not as its checksum says."""
    view = buffer.data
    wrong = []
    at = 0
    for entry in frame.entries:
        end, value = at + entry.n_bytes, 0
        while at < end:
            piece = view[at : min(at + PIECE_BYTES, end)]
            n_read = answer.readinto(piece)
            if n_read == 0:
                raise CutError(f"{at} of {len(buffer)} bytes")
            if check:
                value = checksums.crc32c(piece[:n_read], value)
            at += n_read
        expected = frame.checksums[entry.name]
        if check and value != expected:
            wrong.append(_wrong_bytes(entry.name, expected, value))
    if len(buffer) == 0:
        answer.read()
    return wrong


def _rows(frame: Frame, asked: Asked, buffer: NDArray[np.uint8], n_tokens: int) -> Rows:
    arrays = _arrays(frame, buffer)
    offsets = np.array([0, n_tokens], np.int64)
    if asked.is_batch:
        offsets = arrays.pop(OFFSETS).astype(np.int64)
        _check_samples(asked, offsets, arrays.pop(SAMPLE_IDS), n_tokens)
    return rows_of(asked, offsets, arrays, buffer)


def _arrays(frame: Frame, buffer: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {}
    at = 0
    for entry in frame.entries:
        end = at + entry.n_bytes
        arrays[entry.name] = buffer[at:end].view(BITS[entry.dtype]).reshape(entry.shape)
        at = end
    return arrays


def _check_samples(
    asked: Asked, offsets: NDArray[np.int64], sample_ids: NDArray[np.generic], n_tokens: int
) -> None:
    _check_ids(asked, sample_ids)
    _check_offsets(asked, offsets, n_tokens)


def _check_ids(asked: Asked, sample_ids: NDArray[np.generic]) -> None:
    if tuple(bytes(row).hex() for row in sample_ids) != asked.sample_ids:
        raise ProtocolError("expected the samples that were asked for, in that order, got others")


def _check_offsets(asked: Asked, offsets: NDArray[np.int64], n_tokens: int) -> None:
    wrong_ends = offsets[0] != 0 or offsets[-1] != n_tokens
    if wrong_ends or len(offsets) != len(asked.sample_ids) + 1 or bool((np.diff(offsets) < 0).any()):
        raise ProtocolError(f"expected offsets from 0 up to {n_tokens}, got {offsets.tolist()[:100]}")


def rows_of(
    asked: Asked,
    offsets: NDArray[np.int64],
    arrays: Mapping[str, NDArray[np.generic]],
    buffer: NDArray[np.uint8],
) -> Rows:
    """Return arrays by name as the rows that were asked for, in the order of the names."""
    shapes = asked.shapes
    return Rows(
        dataset=asked.dataset,
        version=asked.number,
        sample_ids=asked.sample_ids,
        offsets=offsets,
        tensors={name: arrays[name] for name in asked.names if not shapes[name].is_column},
        tokens={name: arrays[name] for name in asked.names if shapes[name].is_column},
        dtypes={name: shapes[name].dtype for name in asked.names},
        buffer=buffer,
    )
