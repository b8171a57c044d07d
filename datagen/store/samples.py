"""`samples.parquet`: one row a sample, in the order of the part's rows.

    sample_id prompt_id         32 bytes each
    conversation_id source      where it comes from
    row_start n_tokens n_trained
    crc32c.<tensor>             of each 64-row block of the sample, counted from its start
    crc32c_all.<tensor>         of all its rows
    norms.<tensor>              the L2 norm of each row
    text                        the conversation as canonical JSON, or null

Only the text compresses (digests, checksums and norms are noise), so only the text is compressed. It is
written a row group at a time: memory does not grow with the part.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datagen.store.checksum import Scan
from datagen.store.door import Buffer, KeyWriter
from datagen.store.sample_data import SampleData
from schemas.records import FileDigest
from schemas.schema import Schema

ID_BYTES = 32
_GROUP_BYTES = 8 * 2**20


class SampleRow(NamedTuple):
    """A sample as it was written, its tensors' values left out."""

    sample_id: str
    prompt_id: str
    conversation_id: str
    source: str
    row_start: int
    n_tokens: int
    n_trained: int
    scans: Mapping[str, Scan]
    norms: Mapping[str, NDArray[np.float32]]
    text: str | None

    @classmethod
    def of(cls, sample: SampleData, row_start: int, scans: Mapping[str, Scan]) -> Self:
        """Return the row of a sample that starts at `row_start`; it holds none of the sample's buffers."""
        return cls(
            sample_id=sample.sample_id,
            prompt_id=sample.prompt_id,
            conversation_id=sample.conversation_id,
            source=sample.source,
            row_start=row_start,
            n_tokens=sample.n_tokens,
            n_trained=int(np.count_nonzero(sample.tokens["loss_mask"])),
            scans=scans,
            norms={name: norms.copy() for name, norms in sample.norms.items()},
            text=sample.text,
        )


def samples_schema(schema: Schema) -> pa.Schema:
    """Return the columns of `samples.parquet` of a dataset under `schema`."""
    fields: list[pa.Field[Any]] = [
        pa.field("sample_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("prompt_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("conversation_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row_start", pa.int64(), nullable=False),
        pa.field("n_tokens", pa.int32(), nullable=False),
        pa.field("n_trained", pa.int32(), nullable=False),
    ]
    for name in schema.names:
        fields.append(pa.field(f"crc32c.{name}", pa.list_(pa.uint32()), nullable=False))
        fields.append(pa.field(f"crc32c_all.{name}", pa.uint32(), nullable=False))
        fields.append(pa.field(f"norms.{name}", pa.list_(pa.float32()), nullable=False))
    return pa.schema([*fields, pa.field("text", pa.string())])


class SamplesWriter:
    """Writes `samples.parquet` as a stream, with page checksums, and hashes it on the way."""

    def __init__(self, writer: KeyWriter, schema: Schema) -> None:
        self._schema = schema
        self._columns = samples_schema(schema)
        self._sink = _HashingSink(writer)
        self._file = pa.PythonFile(self._sink, mode="w")
        self._parquet = pq.ParquetWriter(
            self._file,
            self._columns,
            compression={name: "zstd" if name == "text" else "none" for name in self._columns.names},
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        self._rows: list[SampleRow] = []
        self._held_bytes = 0

    def add(self, row: SampleRow) -> None:
        """Append one sample; it is kept until the row group is full."""
        self._rows.append(row)
        self._held_bytes += len(row.text or "") + 4 * len(row.norms) * row.n_tokens + 512
        if self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self, path: str) -> FileDigest:
        """Write what is held and the footer, and close; `path` is the file's name in its part."""
        self._flush()
        self._parquet.close()
        self._file.close()
        return self._sink.finish(path)

    def abort(self) -> None:
        """Give up and remove what was written."""
        self._rows = []
        self._sink.abort()

    def _flush(self) -> None:
        if self._rows:
            self._parquet.write_table(_table(self._rows, self._schema, self._columns))
            self._rows, self._held_bytes = [], 0


class _HashingSink(io.RawIOBase):
    """A `KeyWriter` as the file that pyarrow writes to."""

    def __init__(self, writer: KeyWriter) -> None:
        self._writer = writer
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._aborted = False

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        view = memoryview(data)
        if not self._aborted:
            self._sha256.update(view)
            self._writer.write(view)
            self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._size

    def finish(self, path: str) -> FileDigest:
        self._writer.close()
        return FileDigest(path=path, size_bytes=self._size, sha256=self._sha256.hexdigest())

    def abort(self) -> None:
        # pyarrow writes its footer when it is collected, after the key is gone.
        self._aborted = True
        self._writer.abort()


def _table(rows: list[SampleRow], schema: Schema, columns: pa.Schema) -> pa.Table:
    arrays: dict[str, pa.Array[Any]] = {
        "sample_id": id_array([row.sample_id for row in rows]),
        "prompt_id": id_array([row.prompt_id for row in rows]),
    }
    for name in ("conversation_id", "source", "row_start", "n_tokens", "n_trained", "text"):
        arrays[name] = pa.array([getattr(row, name) for row in rows], columns.field(name).type)
    for name in schema.names:
        arrays[f"crc32c.{name}"] = _lists([row.scans[name].blocks for row in rows])
        arrays[f"crc32c_all.{name}"] = pa.array([row.scans[name].whole for row in rows], pa.uint32())
        arrays[f"norms.{name}"] = _lists([row.norms[name] for row in rows])
    return pa.Table.from_arrays([arrays[name] for name in columns.names], schema=columns)


def id_array(hex_ids: list[str]) -> "pa.Array[Any]":
    """Return ids of 64 hex digits as an array of 32 bytes each."""
    return pa.array([bytes.fromhex(text) for text in hex_ids], pa.binary(ID_BYTES))


def _lists(values: Sequence[NDArray[np.generic]]) -> Any:
    ends = np.cumsum([0, *(len(array) for array in values)], dtype=np.int32)
    flat: Any = np.concatenate(values)
    offsets: Any = pa.array(ends)
    return pa.ListArray.from_arrays(offsets, pa.array(flat))
