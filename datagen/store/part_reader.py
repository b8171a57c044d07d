"""One part, read: any token range of a sample by plain ranges of bytes, checked block by block.

The reader goes by the part's own lengths and checksums, never by Zarr's: what is missing, short or changed is
an error with its name, where Zarr would give zeros.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import block_sums, bytes_of
from datagen.store.damage import corrupt, damage
from datagen.store.door import Door
from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.errors import CorruptError, NotFoundError, StoreError
from datagen.store.group import column_path, tensor_path
from datagen.store.layout import SAMPLES, Layout
from datagen.store.part_table import PartSample, PartTable
from schemas.errors import RecordError, SchemaError
from schemas.problem import Problem
from schemas.record import sha256_hex
from schemas.records import BLOCK_ROWS, PartRecord
from schemas.schema import Schema

_PIECE_BYTES = 2**20
"""Read and checked at once: small enough to be summed in the cache. A bucket answers one request instead."""

_PLANE_BYTES = 2**19
"""Of a plane: what was read is copied as well while it lies there."""


WhyGone = Callable[[str], StoreError | None]
"""Says of a part id why its files are not there, where somebody knows."""


def nobody_knows(_part_id: str) -> None:
    """Say nothing of why a part's files are not there."""


class ByteRange(NamedTuple):
    """Where rows lie: `length` bytes from `offset` of `key`."""

    key: str
    offset: int
    length: int


class _TensorFile(NamedTuple):
    """A tensor of the part: the key of its rows, their length, and how much of them is read at once."""

    name: str
    key: str
    row_bytes: int
    block_bytes: int
    piece_bytes: int
    plane_bytes: int


class _Stored(NamedTuple):
    """A sample's tensor on disk: `size` bytes from `offset` of its file, with the crc32c of each block."""

    file: _TensorFile
    row: int
    offset: int
    size: int
    checksums: list[int]


class PartReader:
    """Reads a part of `dataset` under `schema`; lazy, and safe for threads.

    With `part_sha256`, the sha256 of `part.json`, everything small is checked by the chain of digests.
    Every method raises `CorruptError` where bytes are missing, short or changed, and `NotFoundError` where no
    such part is; where `why_gone` knows why a file is not there (gc swept it), its error instead.
    """

    def __init__(
        self,
        door: Door,
        dataset: str,
        part_id: str,
        schema: Schema,
        part_sha256: str | None = None,
        why_gone: WhyGone = nobody_knows,
    ) -> None:
        self.part_id = part_id
        self._door = door
        self._layout = Layout(dataset)
        self._folder = self._layout.part(part_id)
        self._schema = schema
        self._sha256 = part_sha256
        self._why_gone = why_gone
        self._is_local = door.local_path(self._folder) is not None
        self._columns: dict[str, NDArray[np.generic]] = {}
        self._files: dict[str, _TensorFile] = {}

    @cached_property
    def record(self) -> PartRecord:
        """The part's record, its digest and its agreement with the schema checked."""
        key = self._layout.part_record(self.part_id)
        try:
            data = self._door.read(key)
        except NotFoundError as error:
            raise self._why_gone(self.part_id) or error from error
        if self._sha256 is not None and (found := sha256_hex(data)) != self._sha256:
            raise corrupt(key, "sha256", f"expected sha256 {self._sha256}, got {found}")
        try:
            record = PartRecord.from_json(data, key)
        except RecordError as error:
            raise CorruptError(f"{key} is damaged", error.problems) from error
        if problems := _record_problems(record, self._schema, self.part_id, key):
            raise CorruptError(f"{key} is damaged", problems)
        return record

    @cached_property
    def table(self) -> PartTable:
        """The rows of `samples.parquet`, one a sample."""
        key = f"{self._folder}/{SAMPLES}"
        return PartTable.decode(self._whole_file(SAMPLES), self._schema, self.record, key)

    def locate(self, row_start: int, n_tokens: int, name: str, window: slice | None = None) -> ByteRange:
        """Return where the rows of `window` of a sample's tensor lie."""
        spec = self._schema.tensor(name)
        first, end = window_of(window, n_tokens)
        if row_start < 0 or row_start + n_tokens > self.record.n_tokens:
            raise self._beyond(row_start, n_tokens)
        key = f"{self._folder}/{tensor_path(name)}"
        return ByteRange(key, (row_start + first) * spec.row_bytes, (end - first) * spec.row_bytes)

    def locate_tokens(
        self, row_start: int, n_tokens: int, name: str, window: slice | None = None
    ) -> ByteRange:
        """Return where the values of `window` of a sample's token column lie."""
        first, end = window_of(window, n_tokens)
        size = self._column(name).itemsize
        key = f"{self._folder}/{column_path(name)}"
        return ByteRange(key, (row_start + first) * size, (end - first) * size)

    def read_tensor(
        self,
        row_start: int,
        n_tokens: int,
        name: str,
        window: slice | None = None,
        *,
        check: bool = True,
        out: NDArray[np.generic] | None = None,
    ) -> NDArray[np.generic]:
        """Return a sample's rows `[t, H]` of the tensor's dtype: all of them, or those of `window`.

        With `check` every 64-row block that the window touches is read whole and compared with its crc32c.
        `out`, C-contiguous, is filled and returned instead of a new array.
        """
        spec = self._schema.tensor(name)
        place = self.locate(row_start, n_tokens, name, window)
        first, end = window_of(window, n_tokens)
        rows = _output(out, (end - first, spec.width), NUMPY_DTYPES[spec.dtype])
        if len(rows) == 0:
            return rows
        flat = bytes_of(rows)
        if check:
            self.read_bytes(row_start, n_tokens, name, first * spec.row_bytes, flat)
        else:
            try:
                self._door.read_into(place.key, place.offset, flat)
            except NotFoundError as error:
                raise self._unreadable(name, row_start, error) from error
        return rows

    def read_bytes(
        self, row_start: int, n_tokens: int, name: str, first: int, out: NDArray[np.uint8]
    ) -> None:
        """Fill `out` with the bytes of a sample's tensor from byte `first` of it on; always checked.

        Every 64-row block that they touch is read whole and compared with its crc32c. Raises `IndexError`
        where they leave the sample.
        """
        stored = self._stored(name, self.table.find(row_start, n_tokens))
        if not 0 <= first <= first + len(out) <= stored.size:
            raise IndexError(f"expected bytes within 0 to {stored.size}, got {first} to {first + len(out)}")
        try:
            self._read_checked(stored, first, out)
        except NotFoundError as error:
            raise self._unreadable(name, row_start, error) from error

    def read_planes(self, row_start: int, n_tokens: int, planes: Mapping[str, NDArray[np.uint8]]) -> None:
        """Fill planes `[T, bytes of a row]` with a whole sample's tensors, by name; always checked.

        The rows of a plane may lie apart from one another.
        """
        row = self.table.find(row_start, n_tokens)
        scratch = np.empty(0, np.uint8)
        for name, plane in planes.items():
            stored = self._stored(name, row)
            n_bytes = min(stored.file.plane_bytes, stored.size)
            if len(scratch) < n_bytes:
                scratch = np.empty(n_bytes, np.uint8)
            try:
                self._read_plane(stored, plane, scratch[:n_bytes])
            except NotFoundError as error:
                raise self._unreadable(name, row_start, error) from error

    def block_checksums(self, row_start: int, n_tokens: int, name: str) -> NDArray[np.uint32]:
        """Return the crc32c of each 64-row block of a sample's tensor, `[ceil(T / 64)]`, as written."""
        return self.table.blocks(self.table.find(row_start, n_tokens), name)

    def read_tokens(
        self, row_start: int, n_tokens: int, name: str, window: slice | None = None
    ) -> NDArray[np.generic]:
        """Return a sample's values `[t]` of a token column, or those of `window`; always checked."""
        first, end = window_of(window, n_tokens)
        values = self._column(name)
        if row_start < 0 or row_start + n_tokens > len(values):
            raise self._beyond(row_start, n_tokens)
        return values[row_start + first : row_start + end]

    def read_norms(
        self, row_start: int, n_tokens: int, name: str, window: slice | None = None
    ) -> NDArray[np.float32]:
        """Return the L2 norm of each row `[t]` of a sample's tensor, as the engine measured it."""
        self._schema.tensor(name)
        first, end = window_of(window, n_tokens)
        return self.table.norms(self.table.find(row_start, n_tokens), name)[first:end]

    def sample(self, row_start: int, n_tokens: int) -> PartSample:
        """Return a sample's ids, source and text."""
        return self.table.sample(self.table.find(row_start, n_tokens))

    def missing(self, headline: str, error: NotFoundError) -> StoreError:
        """Return the error of a file of this part that is not there: damage, unless gc swept the part."""
        damaged = CorruptError(f"part {self.part_id}: {headline}", error.problems)
        return self._why_gone(self.part_id) or damaged

    def samples(self) -> Iterator[PartSample]:
        """Yield every sample of the part, in the order of its rows."""
        return (self.table.sample(row) for row in range(len(self.table)))

    def _file(self, name: str) -> _TensorFile:
        """Return what is the same for every sample of the part; raises `SchemaError` for an unknown name."""
        file = self._files.get(name)
        if file is None:
            spec = self._schema.tensor(name)
            block_bytes = BLOCK_ROWS * spec.row_bytes
            piece, plane = (
                max(1, (n_bytes if self._is_local else 2**40) // block_bytes) * block_bytes
                for n_bytes in (_PIECE_BYTES, _PLANE_BYTES)
            )
            key = f"{self._folder}/{tensor_path(name)}"
            file = self._files[name] = _TensorFile(name, key, spec.row_bytes, block_bytes, piece, plane)
        return file

    def _stored(self, name: str, row: int) -> _Stored:
        table, file = self.table, self._file(name)
        offset, size = int(table.row_starts[row]) * file.row_bytes, int(table.n_tokens[row]) * file.row_bytes
        return _Stored(file, row, offset, size, table.blocks(row, name).tolist())

    def _read_checked(self, stored: _Stored, first: int, out: NDArray[np.uint8]) -> None:
        """Fill `out` from byte `first` of a sample's tensor on; compare every block that it touches.

        Pieces of whole blocks are summed while they lie in the cache; those that jut out of `out` are read
        aside and trimmed.
        """
        end, block_bytes, step = first + len(out), stored.file.block_bytes, stored.file.piece_bytes
        changed: list[Problem] = []
        for start in range(first // block_bytes * block_bytes, end, step):
            stop = min(start + step, -(-end // block_bytes) * block_bytes, stored.size)
            inside = start >= first and stop <= end
            piece = out[start - first : stop - first] if inside else np.empty(stop - start, np.uint8)
            changed += self._read_blocks(stored, start, piece)
            if not inside:
                low, high = max(start, first), min(stop, end)
                out[low - first : high - first] = piece[low - start : high - start]
        self._refuse(stored.file, changed)

    def _read_plane(self, stored: _Stored, plane: NDArray[np.uint8], scratch: NDArray[np.uint8]) -> None:
        """Fill a plane with a sample's tensor, as much at once as `scratch` takes; compare every block."""
        row_bytes, size, step = stored.file.row_bytes, stored.size, len(scratch)
        changed: list[Problem] = []
        for start in range(0, size, step):
            piece = scratch[: size - start]
            changed += self._read_blocks(stored, start, piece)
            first = start // row_bytes
            plane[first : first + len(piece) // row_bytes] = piece.reshape(-1, row_bytes)
        self._refuse(stored.file, changed)

    def _read_blocks(self, stored: _Stored, start: int, piece: NDArray[np.uint8]) -> list[Problem]:
        """Fill `piece` with whole blocks, from byte `start` of a tensor on; return those that changed."""
        file = stored.file
        self._door.read_into(file.key, stored.offset + start, piece)
        sums, first = block_sums(piece, file.block_bytes), start // file.block_bytes
        wanted = stored.checksums[first : first + len(sums)]
        if sums == wanted:
            return []
        return [
            self._changed(file.key, stored.row, block, expected, found)
            for block, (expected, found) in enumerate(zip(wanted, sums, strict=True), first)
            if found != expected
        ]

    def _refuse(self, file: _TensorFile, changed: list[Problem]) -> None:
        if changed:
            raise CorruptError(f"part {self.part_id}: {file.name} is damaged", changed)

    def _unreadable(self, name: str, row_start: int, error: NotFoundError) -> StoreError:
        """Return the error of a tensor whose file is gone."""
        return self.missing(f"{name} from row {row_start} on cannot be read", error)

    def _changed(self, key: str, row: int, block: int, wanted: int, found: int) -> Problem:
        sample_id = self.table.sample(row).sample_id
        message = f"sample {sample_id}, block {block}: expected crc32c {wanted:#010x}, got {found:#010x}"
        return damage(key, "crc32c", message)

    def _column(self, name: str) -> NDArray[np.generic]:
        """Return a token column of the whole part, `[T]`, read once."""
        values = self._columns.get(name)
        if values is None:
            columns = {column.name: column for column in self._schema.token_columns}
            if name not in columns:
                message = f"expected one of {', '.join(columns)}, got {name!r}"
                raise SchemaError("no such column", [Problem(where=name, kind="column", message=message)])
            dtype = NUMPY_DTYPES[columns[name].dtype]
            data = self._whole_file(column_path(name))
            values = np.frombuffer(data, dtype, count=self.record.n_tokens)
            self._columns[name] = values
        return values

    def _whole_file(self, path: str) -> bytes:
        """Return a small file of the part, its size and sha256 those of the record."""
        key = f"{self._folder}/{path}"
        (expected,) = (file for file in self.record.files if file.path == path)
        try:
            data = self._door.read(key)
        except NotFoundError as error:
            raise self.missing(f"{path} is gone", error) from error
        if (found := sha256_hex(data)) != expected.sha256:
            sizes = f"{expected.size_bytes} bytes were written, {len(data)} are there"
            message = f"expected sha256 {expected.sha256}, got {found} ({sizes})"
            raise corrupt(key, "sha256", message)
        return data

    def _beyond(self, row_start: int, n_tokens: int) -> CorruptError:
        message = f"expected rows below {self.record.n_tokens}, got {row_start} to {row_start + n_tokens}"
        return corrupt(self._folder, "rows", message)


def window_of(window: slice | None, n_tokens: int) -> tuple[int, int]:
    """Return the first token of a window and the one after its last.

    A window is not clipped: one that reaches past the sample raises `IndexError`.

    >>> window_of(None, 10), window_of(slice(2, 5), 10), window_of(slice(7, None), 10)
    ((0, 10), (2, 5), (7, 10))
    """
    if window is None:
        return 0, n_tokens
    first = 0 if window.start is None else window.start
    end = n_tokens if window.stop is None else window.stop
    if window.step not in (None, 1) or not 0 <= first <= end <= n_tokens:
        raise IndexError(f"expected a window of tokens within 0 to {n_tokens}, got {window}")
    return first, end


def _output(
    out: NDArray[np.generic] | None, shape: tuple[int, int], dtype: np.dtype[np.generic]
) -> NDArray[np.generic]:
    if out is None:
        return np.empty(shape, dtype)
    if out.dtype != dtype or out.shape != shape or not out.flags.c_contiguous:
        raise ValueError(f"expected `out` as C-contiguous {dtype} {shape}, got {out.dtype} {out.shape}")
    return out


def _record_problems(record: PartRecord, schema: Schema, part_id: str, key: str) -> list[Problem]:
    """Return where a part's record contradicts its folder or the schema."""
    problems = []
    if record.part_id != part_id:
        problems.append(damage(key, "part_id", f"expected {part_id}, got {record.part_id}"))
    if record.schema_fingerprint != schema.fingerprint:
        message = f"expected {schema.fingerprint}, got {record.schema_fingerprint}"
        problems.append(damage(key, "schema", message))
    expected = [
        (spec.name, tensor_path(spec.name), spec.row_bytes, spec.row_bytes * record.n_tokens)
        for spec in schema.tensors
    ]
    found = [(tensor.name, tensor.path, tensor.row_bytes, tensor.payload_bytes) for tensor in record.tensors]
    if found != expected:
        problems.append(damage(key, "tensors", f"expected {expected}, got {found}"))
    paths = [SAMPLES, *(column_path(column.name) for column in schema.token_columns)]
    digests = {file.path: file.sha256 for file in record.files}
    for path in paths:
        if digests.get(path) is None:
            problems.append(damage(key, "files", f"expected a sha256 of {path}, got none"))
    return problems
