"""The Zarr group of a part, written: tensors as streams, token columns and offsets at the end.

Each array's `zarr.json` comes after its data, the group's own last: whoever looks in early finds no array
that would read as zeros.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import Scan, bytes_of, crc32c, scan
from datagen.store.door import Door
from datagen.store.layout import GROUP
from datagen.store.metadata import column_json, group_json, tensor_json
from datagen.store.sample_data import SampleData
from datagen.store.shard import SHARD, ShardWriter
from schemas.records import FileDigest, PartTensor
from schemas.schema import Schema, TensorSpec

METADATA = "zarr.json"
CHUNK = "c/0"
OFFSETS = "offsets"

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def tensor_path(name: str) -> str:
    """Return the path of a hidden tensor's shard in its part.

    >>> tensor_path("embed")
    'data.zarr/embed/c/0/0'
    """
    return f"{GROUP}/{name}/{SHARD}"


def column_path(name: str) -> str:
    """Return the path of a token column's one chunk in its part.

    >>> column_path("input_ids")
    'data.zarr/input_ids/c/0'
    """
    return f"{GROUP}/{name}/{CHUNK}"


class GroupWriter:
    """Writes the group under `part_folder`; a sample's tensors go through `executor` side by side."""

    def __init__(self, door: Door, part_folder: str, schema: Schema, executor: Executor) -> None:
        self._door = door
        self._folder = part_folder
        self._schema = schema
        self._executor = executor
        self._columns: dict[str, list[NDArray[np.generic]]] = {c.name: [] for c in schema.token_columns}
        self._offsets = [0]
        self._shards: dict[str, ShardWriter] = {}
        with ExitStack() as undo:
            undo.callback(self.abort)
            for spec in schema.tensors:
                key = f"{part_folder}/{tensor_path(spec.name)}"
                self._shards[spec.name] = ShardWriter.open(door, key, spec.row_bytes)
            undo.pop_all()

    @property
    def n_tokens(self) -> int:
        """Rows written so far."""
        return self._offsets[-1]

    def scan(self, tensors: Mapping[str, NDArray[np.generic]]) -> dict[str, Scan]:
        """Check and checksum a sample's tensors; nothing is written."""
        scans = self._each(lambda spec: scan(tensors[spec.name], spec.dtype), self._schema.tensors)
        return dict(zip(self._schema.names, scans, strict=True))

    def append(self, sample: SampleData) -> None:
        """Write a sample that was found to fit the schema."""
        self._each(
            lambda spec: self._shards[spec.name].append(sample.tensors[spec.name]), self._schema.tensors
        )
        for name, values in self._columns.items():
            values.append(sample.tokens[name].copy())
        self._offsets.append(self.n_tokens + sample.n_tokens)

    def finish(self) -> tuple[tuple[PartTensor, ...], list[FileDigest]]:
        """Write what is left and close; return the tensors and every file, its bytes durable."""
        tensors = self._each(self._finish_tensor, self._schema.tensors)
        arrays: list[tuple[str, str, str, NDArray[np.generic]]] = [
            (column.name, column.dtype, "token", np.concatenate(self._columns[column.name]))
            for column in self._schema.token_columns
        ]
        arrays.append((OFFSETS, "int64", "boundary", np.array(self._offsets, np.int64)))
        columns = self._each(lambda array: self._put_column(*array), arrays)
        files = list(chain.from_iterable(digests for _, digests in tensors))
        files += chain.from_iterable(columns)
        files.append(self._put(f"{GROUP}/{METADATA}", group_json()))
        return tuple(tensor for tensor, _ in tensors), files

    def abort(self) -> None:
        """Give up and remove what was written."""
        for shard in self._shards.values():
            shard.abort()

    def _finish_tensor(self, spec: TensorSpec) -> tuple[PartTensor, list[FileDigest]]:
        size = self._shards[spec.name].finish()
        path = tensor_path(spec.name)
        tensor = PartTensor(
            name=spec.name, path=path, row_bytes=spec.row_bytes, payload_bytes=size.payload_bytes
        )
        metadata = tensor_json(self.n_tokens, spec.width, spec.dtype)
        return tensor, [
            FileDigest(path=path, size_bytes=size.size_bytes),
            self._put(f"{GROUP}/{spec.name}/{METADATA}", metadata),
        ]

    def _put_column(self, name: str, dtype: str, axis: str, values: NDArray[np.generic]) -> list[FileDigest]:
        data = bytes_of(values).tobytes()
        return [
            self._put(column_path(name), data + crc32c(data).to_bytes(4, "little")),
            self._put(f"{GROUP}/{name}/{METADATA}", column_json(len(values), dtype, axis)),
        ]

    def _put(self, path: str, data: bytes) -> FileDigest:
        with self._door.open_writer(f"{self._folder}/{path}") as writer:
            writer.write(data)
        return FileDigest(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    def _each(self, act: Callable[[_In], _Out], items: Iterable[_In]) -> list[_Out]:
        return list(self._executor.map(act, items))
