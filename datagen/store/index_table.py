"""One index file: rows sorted by `sample_id`, each with the part it lies in as a number into a parts table.

On disk it is `index/<sha256>.parquet`, named by its content, with page checksums; the parts table stands in
the file's metadata, 96 hex digits a part (its id, then the sha256 of its `part.json`), so that a row carries
four bytes for both. Ids are sha256 digests and norms are noise: nothing in it compresses, so nothing is.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datagen.store.closed_part import index_columns
from datagen.store.damage import corrupt
from schemas.records import IndexFile

_Value = TypeVar("_Value", bound=np.generic)
_Int = TypeVar("_Int", bound=np.integer[Any])

_PARTS_KEY = b"strata.parts.v1"
_PART_BYTES = 16 + 32
ID_BYTES = 32


class PartReference(NamedTuple):
    """A part by its id and the sha256 of its `part.json`."""

    part_id: str
    sha256: str


def index_schema(n_tensors: int) -> pa.Schema:
    """Return the columns of an index file of a dataset with `n_tensors` hidden tensors."""
    columns = index_columns(n_tensors)
    part = pa.field("part", pa.int32(), nullable=False)
    without = columns.remove(columns.get_field_index("part_sha256"))
    return without.set(without.get_field_index("part_id"), part)


class IndexTable:
    """The rows of one index file, in memory, ascending and distinct in `sample_id`.

    `rows` has the columns of `index_schema`, one chunk each; `parts` is `[p, 48]` uint8.
    """

    def __init__(self, rows: pa.Table, parts: NDArray[np.uint8]) -> None:
        self.rows = rows.combine_chunks()
        self.parts = parts

    @classmethod
    def sorted_from(cls, rows: pa.Table, parts: NDArray[np.uint8]) -> Self:
        """Return a table of rows in any order; parts that no row names are left out."""
        order = np.argsort(id_strings(rows.column("sample_id")), kind="stable")
        rows = rows.take(order)
        used, renumbered = np.unique(int_values(rows.column("part"), np.int32), return_inverse=True)
        at = rows.schema.get_field_index("part")
        rows = rows.set_column(at, rows.schema.field(at), pa.array(renumbered.astype(np.int32)))
        return cls(rows, parts[used])

    @classmethod
    def merged(cls, tables: Sequence["IndexTable"]) -> Self:
        """Return one table with the rows of all."""
        parts, numbers = np.unique(
            np.concatenate([table.parts for table in tables]), axis=0, return_inverse=True
        )
        shifted, start = [], 0
        for table in tables:
            renumbered = numbers.reshape(-1)[start:].astype(np.int32)[table.part_numbers]
            at = table.rows.schema.get_field_index("part")
            shifted.append(
                table.rows.set_column(at, table.rows.schema.field(at), pa.array(renumbered, pa.int32()))
            )
            start += len(table.parts)
        return cls.sorted_from(pa.concat_tables(shifted), parts)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def ids(self) -> NDArray[np.bytes_]:
        """`[n]` S32: the sample ids; comparing them is comparing their 32 bytes."""
        return id_strings(self.rows.column("sample_id"))

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """`[n]`: the first eight bytes of each sample id as a number, in the same order as the ids."""
        return leading_words(self.ids)

    @cached_property
    def part_numbers(self) -> NDArray[np.int32]:
        """`[n]`: each row's number in `parts`."""
        return int_values(self.rows.column("part"), np.int32)

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """`[n]`: where each sample's rows start in its part."""
        return int_values(self.rows.column("row_start"), np.int64)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`[n]`: tokens of each sample."""
        return int_values(self.rows.column("n_tokens"), np.int32)

    @property
    def n_tokens(self) -> int:
        """Tokens of all rows."""
        return int(self.lengths.sum(dtype=np.int64))

    def part(self, number: int) -> PartReference:
        """Return the part of that number."""
        packed = self.parts[number].tobytes()
        return PartReference(packed[:16].hex(), packed[16:].hex())

    def part_references(self) -> Iterable[PartReference]:
        """Yield every part that a row names."""
        return (self.part(number) for number in range(len(self.parts)))

    def find(self, sample_id: bytes) -> int | None:
        """Return the row of a sample id (32 bytes), or `None`."""
        keys, key = self.keys, np.uint64(int.from_bytes(sample_id[:8], "big"))
        row = int(keys.searchsorted(key))
        while row < len(keys) and keys[row] == key:
            if self._id_at(row) == sample_id:
                return row
            row += 1
        return None

    def holds(self, ids: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Return `[m]`: whether each of `ids` (S32) has a row here."""
        return members(self.ids, ids)

    def without(self, rows: NDArray[np.bool_]) -> "IndexTable | None":
        """Return this table less the marked rows, or `None` when none is left."""
        if bool(rows.all()):
            return None
        return IndexTable.sorted_from(self.rows.filter(pa.array(~rows)), self.parts)

    def _id_at(self, row: int) -> bytes:
        # numpy strips the trailing zero bytes of a fixed-size string.
        return bytes(self.ids[row]).ljust(ID_BYTES, b"\0")

    def encode(self) -> tuple[bytes, IndexFile]:
        """Return the file's bytes and the entry of it in a version record."""
        rows = self.rows.replace_schema_metadata({_PARTS_KEY: self.parts.tobytes().hex().encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="none", use_dictionary=False, write_page_checksum=True)
        data = sink.getvalue().to_pybytes()
        return data, IndexFile(
            sha256=hashlib.sha256(data).hexdigest(),
            n_rows=len(self),
            n_tokens=self.n_tokens,
            size_bytes=len(data),
        )

    @classmethod
    def decode(cls, data: bytes, file: IndexFile, where: str) -> Self:
        """Read an index file's bytes.

        Raises `CorruptError` that names `where` when they are not what the version record says.
        """
        rows = read_hashed_parquet(data, file, where)
        try:
            packed = bytes.fromhex((rows.schema.metadata or {})[_PARTS_KEY].decode())
        except (KeyError, ValueError) as error:
            raise corrupt(where, "parts_table", "expected a parts table in its metadata") from error
        parts = np.frombuffer(packed, np.uint8)
        if not packed or len(packed) % _PART_BYTES:
            raise corrupt(
                where, "parts_table", f"expected {_PART_BYTES} bytes a part, got {len(packed)} in all"
            )
        table = cls(rows.replace_schema_metadata(None), parts.reshape(-1, _PART_BYTES))
        if not ascending(table.ids):
            raise corrupt(where, "order", "expected distinct sample ids in ascending order")
        if table.part_numbers.min() < 0 or table.part_numbers.max() >= len(table.parts):
            raise corrupt(where, "parts_table", f"expected part numbers below {len(table.parts)}")
        return table


def pack_parts(references: Sequence[PartReference]) -> NDArray[np.uint8]:
    """Return `[p, 48]` uint8: each part's id and the sha256 of its `part.json`."""
    packed = b"".join(bytes.fromhex(part.part_id + part.sha256) for part in references)
    return np.frombuffer(packed, np.uint8).reshape(-1, _PART_BYTES)


def read_hashed_parquet(data: bytes, file: IndexFile, where: str) -> pa.Table:
    """Read a content-hashed Parquet file, sha256, page checksums and row count checked."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != file.sha256:
        raise corrupt(
            where,
            "sha256",
            f"expected {file.sha256} over {file.size_bytes} bytes, got {digest} over {len(data)}",
        )
    try:
        # `pq.read_table` would go through pyarrow.dataset, whose import alone takes longer than the file.
        parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
        rows = parquet.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise corrupt(where, "parquet", f"expected a Parquet file, got: {error}") from error
    if rows.num_rows != file.n_rows:
        raise corrupt(where, "rows", f"expected {file.n_rows} rows, got {rows.num_rows}")
    return rows


def id_strings(column: "pa.ChunkedArray[Any]") -> NDArray[np.bytes_]:
    """View a column of 32-byte ids as `[n]` S32; a column of one chunk is not copied."""
    return packed_values(column, np.dtype(f"S{ID_BYTES}"))


def int_values(column: "pa.ChunkedArray[Any]", dtype: type[_Int]) -> NDArray[_Int]:
    """View a column of integers without nulls as `[n]`; a column of one chunk is not copied."""
    return packed_values(column, np.dtype(dtype))


def packed_values(column: "pa.ChunkedArray[Any]", dtype: np.dtype[_Value]) -> NDArray[_Value]:
    """View a column of values of a fixed size without nulls as `[n]`; one chunk is not copied."""
    # pyarrow's own `to_numpy` imports pandas where that is installed, which takes longer than all of this.
    pieces = [_view(chunk, dtype) for chunk in column.chunks]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, dtype), *pieces])


def _view(chunk: "pa.Array[Any]", dtype: np.dtype[_Value]) -> NDArray[_Value]:
    values = chunk.buffers()[1]
    if values is None:
        return np.zeros(0, dtype)
    return np.frombuffer(memoryview(values), dtype)[chunk.offset : chunk.offset + len(chunk)]


def leading_words(ids: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return `[n]`: the first eight bytes of each id, as numbers that sort like the bytes."""
    words = np.ascontiguousarray(ids).view(">u8").reshape(len(ids), ID_BYTES // 8)
    return words[:, 0].astype(np.uint64)


def ascending(ids: NDArray[np.bytes_]) -> bool:
    """Return whether `[n]` ids are distinct and in order."""
    return bool((ids[1:] > ids[:-1]).all())


def members(haystack: NDArray[np.bytes_], needles: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Return `[m]`: which of `needles` are in `haystack`, which is ascending."""
    if not len(haystack):
        return np.zeros(len(needles), np.bool_)
    at = np.minimum(np.searchsorted(haystack, needles), len(haystack) - 1)
    found: NDArray[np.bool_] = haystack[at] == needles
    return found
