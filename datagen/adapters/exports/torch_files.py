"""The bytes of a `torch.save` file, piece by piece, with their number known before the first is read.

A file is a zip archive whose records are stored as they are: the pickled object, in which tensors stand as
references to storages, and a record for each storage, at an address that is a multiple of 64. A checksum
stands behind its record, so nothing needs to be read twice, nor held whole. Equal contents are equal bytes:
an archive has no times, and no name but `archive`. Source: `torch/serialization.py` and
`caffe2/serialize/inline_container.cc` of release 2.13, and the zip format's own APPNOTE 6.3.10.
"""

import pickle
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

ALIGNMENT = 64
"""Of a storage in the file, in bytes: what torch's own writer uses."""
_FOLDER = "archive"
_STORAGES: Mapping[str, tuple[type, int]] = {
    "bfloat16": (torch.BFloat16Storage, 2),
    "float16": (torch.HalfStorage, 2),
    "float32": (torch.FloatStorage, 4),
    "int64": (torch.LongStorage, 8),
    "int32": (torch.IntStorage, 4),
    "uint8": (torch.ByteStorage, 1),
    "bool": (torch.BoolStorage, 1),
}
_REBUILD = torch._utils._rebuild_tensor_v2
"""What every `torch.load` rebuilds a tensor with, `weights_only` too; its name is part of the format."""
_LOCAL, _ENTRY = struct.Struct("<IHHHHHIIIHH"), struct.Struct("<IHHHHHHIIIHHHHHII")
_END64, _LOCATOR, _END = struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI"), struct.Struct("<IHHHHIIH")
_SHORT, _LONG = struct.Struct("<IIII"), struct.Struct("<IIQQ")
_CHECKSUM_BEHIND = 0x0808
"""Flags: sizes and checksum follow the data, and names are UTF-8."""
_ZIP64, _PADDING = 0x0001, 0x4246
_LIMIT = 2**32 - 1
"""The first size, or address, that a plain zip has no room for."""


@dataclass(frozen=True)
class LazyTensor:
    """A tensor of a file to be written: its dtype as the schema names it, its shape, and how to read it.

    `read` yields its values in C order, `prod(shape)` of them, in arrays of any size; it is called anew each
    time that the file's bytes are asked for.
    """

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Iterable[NDArray[np.generic]]]

    @property
    def size_bytes(self) -> int:
        """Bytes of its storage."""
        return prod(self.shape) * _STORAGES[self.dtype][1]


def of_array(values: NDArray[np.generic]) -> LazyTensor:
    """Return an array that is there as a tensor to be written."""
    return LazyTensor(values.dtype.name, values.shape, lambda: [values])


class _Record(NamedTuple):
    name: bytes
    size_bytes: int
    read: Callable[[], Iterable[memoryview | bytes]]


class _Written(NamedTuple):
    record: _Record
    offset: int
    crc32: int


class TorchFile:
    """What `torch.save(content, file)` writes, for a dict, list, str, bool or int of `LazyTensor`s."""

    def __init__(self, content: object) -> None:
        self._records = _records(content)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file; nothing is read for it."""
        offset, written = 0, []
        for record in self._records:
            written.append(_Written(record, offset, 0))
            offset += len(_header(record, offset)) + record.size_bytes + len(_behind(record, 0))
        return offset + len(_directory(written, offset))

    def pieces(self) -> Iterator[memoryview | bytes]:
        """Yield the bytes; raises `ValueError` where a tensor's reader gives more or fewer than it said."""
        offset = 0
        written = []
        for record in self._records:
            head = _header(record, offset)
            yield head
            crc32 = size_bytes = 0
            for piece in record.read():
                crc32 = zlib.crc32(piece, crc32)
                size_bytes += len(piece)
                yield piece
            if size_bytes != record.size_bytes:
                name = record.name.decode()
                raise ValueError(f"{name}: expected {record.size_bytes} bytes, got {size_bytes}")
            behind = _behind(record, crc32)
            yield behind
            written.append(_Written(record, offset, crc32))
            offset += len(head) + size_bytes + len(behind)
        yield _directory(written, offset)


def _records(content: object) -> list[_Record]:
    pickler = _Pickler()
    pickled = pickler.pickled(content)
    small = [("data.pkl", pickled), (".format_version", b"1"), (".storage_alignment", b"%d" % ALIGNMENT)]
    small.append(("byteorder", b"little"))
    records = [_small(name, data) for name, data in small]
    for number, tensor in enumerate(pickler.tensors):
        name = f"{_FOLDER}/data/{number}".encode()
        records.append(_Record(name, tensor.size_bytes, _reader(tensor)))
    return [*records, _small("version", b"3\n")]


def _small(name: str, data: bytes) -> _Record:
    return _Record(f"{_FOLDER}/{name}".encode(), len(data), lambda: [data])


def _reader(tensor: LazyTensor) -> Callable[[], Iterator[memoryview]]:
    def read() -> Iterator[memoryview]:
        for values in tensor.read():
            yield np.ascontiguousarray(values).reshape(-1).view(np.uint8).data

    return read


@dataclass(frozen=True)
class _Storage:
    tensor: LazyTensor
    number: int


class _Pickler(pickle.Pickler):
    """Pickles tensors as torch does: a call that rebuilds one over a storage, which is kept outside."""

    def __init__(self) -> None:
        self._sink = BytesIO()
        super().__init__(self._sink, protocol=2)
        self.tensors: list[LazyTensor] = []

    def pickled(self, content: object) -> bytes:
        self.dump(content)
        return self._sink.getvalue()

    def persistent_id(self, value: object) -> tuple[object, ...] | None:
        if not isinstance(value, _Storage):
            return None
        kind, _ = _STORAGES[value.tensor.dtype]
        return "storage", kind, str(value.number), "cpu", prod(value.tensor.shape)

    def reducer_override(self, value: object) -> Any:
        if not isinstance(value, LazyTensor):
            return NotImplemented
        storage = _Storage(value, len(self.tensors))
        self.tensors.append(value)
        shape = value.shape
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return _REBUILD, (storage, 0, shape, strides, False, OrderedDict())


def _header(record: _Record, offset: int) -> bytes:
    """Return what stands before a record that begins at `offset`: its data begins at a multiple of 64."""
    large = record.size_bytes >= _LIMIT
    size = _LIMIT if large else 0
    extra = struct.pack("<HHQQ", _ZIP64, 16, 0, 0) if large else b""
    bare = offset + _LOCAL.size + len(record.name) + len(extra) + 4
    padding = -bare % ALIGNMENT
    extra += struct.pack("<HH", _PADDING, padding) + b"Z" * padding
    needs = 45 if large else 20
    fields = (0x04034B50, needs, _CHECKSUM_BEHIND, 0, 0, 0, 0, size, size, len(record.name), len(extra))
    return _LOCAL.pack(*fields) + record.name + extra


def _behind(record: _Record, crc32: int) -> bytes:
    kind = _LONG if record.size_bytes >= _LIMIT else _SHORT
    return kind.pack(0x08074B50, crc32, record.size_bytes, record.size_bytes)


def _directory(written: list[_Written], offset: int) -> bytes:
    """Return the end of the archive, which begins at `offset`: what lies where, and where this is said."""
    entries = b"".join(map(_entry, written))
    count, size, end = len(written), len(entries), offset + len(entries)
    return (
        entries
        + _END64.pack(0x06064B50, 44, 45, 45, 0, 0, count, count, size, offset)
        + _LOCATOR.pack(0x07064B50, 0, end, 1)
        + _END.pack(0x06054B50, 0, 0, count, count, size, min(offset, _LIMIT), 0)
    )


def _entry(written: _Written) -> bytes:
    record = written.record
    # Only what has no room in its own field stands in the extra one, in this order.
    wide = [value for value in (record.size_bytes, record.size_bytes, written.offset) if value >= _LIMIT]
    extra = struct.pack(f"<HH{len(wide)}Q", _ZIP64, 8 * len(wide), *wide) if wide else b""
    size, needs = min(record.size_bytes, _LIMIT), 45 if wide else 20
    fields = (0x02014B50, 0, needs, _CHECKSUM_BEHIND, 0, 0, 0, written.crc32, size, size)
    place = (len(record.name), len(extra), 0, 0, 0, 0, min(written.offset, _LIMIT))
    return _ENTRY.pack(*fields, *place) + record.name + extra
