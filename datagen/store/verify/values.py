"""The values of a part, verified: token columns, and every row of every tensor, in O(block) memory.

Tensors are read once, a few blocks at a time, and checksummed, searched for NaN and Inf, and measured in the
same pass.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import Scan, combine, crc32c, scan
from datagen.store.damage import damage
from datagen.store.door import Door
from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.errors import StoreError
from datagen.store.group import OFFSETS, column_path, tensor_path
from datagen.store.layout import SAMPLES
from datagen.store.part_table import PartTable
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS
from schemas.sample import SAMPLE_PREFIX
from schemas.schema import Schema, TensorSpec

PIECE_BYTES = 4 * 2**20
NORM_TOLERANCE = 2e-3
"""Relative: an engine sums squares in float32, in an order of its own."""


@dataclass(frozen=True)
class ByteSource:
    """Reads ranges of keys; `on_read` is told the bytes of each."""

    door: Door
    on_read: Callable[[int], None]

    def pieces(
        self, key: str, start: int, end: int, piece_bytes: int = PIECE_BYTES
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield bytes `start` to `end` of a key in pieces, each with its offset; the buffer is reused."""
        buffer = np.empty(min(piece_bytes, end - start), np.uint8)
        for offset in range(start, end, piece_bytes):
            piece = buffer[: min(piece_bytes, end - offset)]
            self.door.read_into(key, offset, piece)
            self.on_read(len(piece))
            yield offset, piece


class PartValues:
    """The values of the part in `folder`, whose samples `table` lists."""

    def __init__(self, source: ByteSource, folder: str, schema: Schema, table: PartTable) -> None:
        self._source = source
        self._folder = folder
        self._schema = schema
        self._table = table
        self._ends = np.cumsum([0, *table.n_tokens.tolist()], dtype=np.int64)

    def column_problems(self, broken: Collection[str]) -> Iterator[Problem]:
        """Yield what is wrong with the token columns and offsets; those of `broken` paths are left out."""
        values = {}
        columns = {column.name: column.dtype for column in self._schema.token_columns}
        for name, dtype in {**columns, OFFSETS: "int64"}.items():
            if column_path(name) in broken:
                continue
            key = self._key(column_path(name))
            data = self._source.door.read(key)
            n = len(self._table) + 1 if name == OFFSETS else int(self._ends[-1])
            size = n * NUMPY_DTYPES[dtype].itemsize + 4
            if len(data) != size or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
                yield damage(key, "crc32c", f"expected {n} values and their crc32c, got {len(data)} bytes")
                continue
            values[name] = np.frombuffer(data[:-4], NUMPY_DTYPES[dtype])
        if OFFSETS in values and not np.array_equal(values.pop(OFFSETS), self._ends):
            message = "expected the first row of each sample and the end, got others"
            yield damage(self._key(column_path(OFFSETS)), "offsets", message)
        yield from self._range_problems(values)
        for row in range(len(self._table)):
            yield from self._sample_problems(row, values)

    def _range_problems(self, values: dict[str, NDArray[np.generic]]) -> Iterator[Problem]:
        for column in self._schema.token_columns:
            if column.name in values:
                top = 1 if column.dtype == "uint8" else self._schema.target.vocab_size - 1
                array = values[column.name].astype(np.int64)
                low, high = int(array.min()), int(array.max())
                if low < 0 or high > top:
                    key = self._key(column_path(column.name))
                    yield damage(key, "values", f"expected values from 0 to {top}, got {low} to {high}")

    def _sample_problems(self, row: int, values: dict[str, NDArray[np.generic]]) -> Iterator[Problem]:
        sample = self._table.sample(row)
        rows = slice(int(self._ends[row]), int(self._ends[row + 1]))
        where = f"{self._key(SAMPLES)}: sample {sample.sample_id}"
        if "input_ids" in values:
            ids = values["input_ids"][rows].astype("<u4").tobytes()
            found = sha256(SAMPLE_PREFIX + ids).hexdigest()
            if found != sample.sample_id:
                yield damage(where, "identity", f"expected {found}, the hash of its input_ids")
        if "loss_mask" in values:
            trained = int(np.count_nonzero(values["loss_mask"][rows]))
            if trained != sample.n_trained:
                yield damage(where, "n_trained", f"expected {trained}, got {sample.n_trained}")

    def tensor_problems(self, spec: TensorSpec) -> Iterator[Problem]:
        """Yield what is wrong with the rows of a tensor: blocks, whole samples, values, norms, padding."""
        key = self._key(tensor_path(spec.name))
        try:
            for row in range(len(self._table)):
                yield from self._row_problems(spec, row)
            n_rows = int(self._ends[-1])
            start, end = n_rows * spec.row_bytes, (n_rows + -n_rows % BLOCK_ROWS) * spec.row_bytes
            for offset, piece in self._source.pieces(key, start, end):
                if piece.any():
                    yield damage(key, "padding", f"expected zeros from byte {offset}, got others")
        except StoreError as error:
            yield from problems_of(error, key)

    def _row_problems(self, spec: TensorSpec, row: int) -> Iterator[Problem]:
        where = f"{self._key(tensor_path(spec.name))}: sample {self._table.sample(row).sample_id}"
        blocks, norms = self._table.blocks(row, spec.name), self._table.norms(row, spec.name)
        whole, sound = 0, True
        for token, values in self._values(spec, row):
            found = scan(values, spec.dtype)
            whole = combine(whole, found.whole, values.nbytes)
            first = token // BLOCK_ROWS
            problems = [
                *_block_problems(where, first, blocks[first : first + len(found.blocks)], found),
                *_finite_problems(where, token, found),
            ]
            sound = sound and not problems
            yield from problems
            if not problems:
                yield from _norm_problems(where, token, norms[token : token + len(values)], values)
        expected = self._table.whole(row, spec.name)
        if sound and whole != expected:
            yield damage(where, "crc32c", f"expected crc32c {expected:08x} over all rows, got {whole:08x}")

    def _values(self, spec: TensorSpec, row: int) -> Iterator[tuple[int, NDArray[np.generic]]]:
        """Yield a sample's rows in pieces of whole blocks, each with its first token."""
        first, end = (int(self._ends[at]) * spec.row_bytes for at in (row, row + 1))
        piece_bytes = max(1, PIECE_BYTES // (BLOCK_ROWS * spec.row_bytes)) * BLOCK_ROWS * spec.row_bytes
        for offset, piece in self._source.pieces(self._key(tensor_path(spec.name)), first, end, piece_bytes):
            values = piece.view(NUMPY_DTYPES[spec.dtype]).reshape(-1, spec.width)
            yield (offset - first) // spec.row_bytes, values

    def _key(self, path: str) -> str:
        return f"{self._folder}/{path}"


def _block_problems(where: str, first: int, expected: NDArray[np.uint32], found: Scan) -> Iterator[Problem]:
    for wrong in np.flatnonzero(found.blocks != expected):
        message = f"expected crc32c {int(expected[wrong]):08x}, got {int(found.blocks[wrong]):08x}"
        yield damage(f"{where}, block {first + int(wrong)}", "crc32c", message)


def _finite_problems(where: str, token: int, found: Scan) -> Iterator[Problem]:
    if len(found.not_finite):
        at = token + int(found.not_finite[0])
        message = f"expected finite values, got NaN or Inf in {len(found.not_finite)} rows from here"
        yield damage(f"{where}, token {at}", "non_finite", message)


def _norm_problems(
    where: str, token: int, stored: NDArray[np.float32], values: NDArray[np.generic]
) -> Iterator[Problem]:
    norms = row_norms(values)
    wrong = np.flatnonzero(~np.isclose(stored, norms, rtol=NORM_TOLERANCE, atol=1e-6))
    if len(wrong):
        at = int(wrong[0])
        message = f"expected {norms[at]:.6g} of its values, got {stored[at]:.6g}"
        yield damage(f"{where}, token {token + at}", "norm", message)


def row_norms(rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the L2 norm of each row of `[t, H]`, `[t]`.

    >>> [f"{norm:.3g}" for norm in row_norms(np.array([[3, 4], [3e30, 4e30]], np.float32))]
    ['5', '5e+30']
    """
    wide = rows.astype(np.float32)
    with np.errstate(over="ignore"):
        norms: NDArray[np.float64] = np.sqrt(np.einsum("th,th->t", wide, wide).astype(np.float64))
    # The square of a value above 1.8e19 leaves float32, that of one below 1e-19 vanishes.
    doubtful = ~np.isfinite(norms) | (norms < 1e-12)
    if doubtful.any():
        norms[doubtful] = np.linalg.norm(rows[doubtful].astype(np.float64), axis=1)
    return norms


def problems_of(error: StoreError, where: str) -> list[Problem]:
    """Return an error's problems, or one that tells it; a door's own path is told as the key `where`."""
    if not error.problems:
        return [damage(where, "unreadable", f"expected to read it, got: {error}")]
    return [
        problem.model_copy(update={"where": where}) if problem.where.endswith(where) else problem
        for problem in error.problems
    ]
