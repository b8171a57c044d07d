"""A safetensors file whose tensors are read where they lie, when they are used.

First it is found whole: what its head names lies in it, one tensor behind the other, up to its end. Then a
tensor, or one sample's part of it, is read at its place; safetensors' own reader maps the file.
"""

import json
import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.errors import check_is_file, refused, unreadable
from datagen.adapters.read_at import read_at
from datagen.store.dtypes import NUMPY_DTYPES

_LENGTH_BYTES = 8
_MOST_HEAD_BYTES = 100_000_000
"""As safetensors itself takes."""
_DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "BF16": NUMPY_DTYPES["bfloat16"],
    "F16": NUMPY_DTYPES["float16"],
    "F32": NUMPY_DTYPES["float32"],
    "I32": NUMPY_DTYPES["int32"],
    "I64": NUMPY_DTYPES["int64"],
}
_ITEM_BYTES: Mapping[str, int] = {
    **{name: dtype.itemsize for name, dtype in _DTYPES.items()},
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("I16", "U16"), 2),
    "U32": 4,
    **dict.fromkeys(("F64", "U64"), 8),
}
"""Of the dtypes whose tensors can be read; those of fewer bits than 8 are none of them."""


class Placed(NamedTuple):
    """A tensor of a file: its dtype as safetensors names it, its shape, its first byte, the one behind it."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def placed_in(file: Path) -> dict[str, Placed]:
    """Return what a file holds; raises `ForeignFileError` for one that is not there or is not whole."""
    check_is_file(file)
    try:
        with open(file, "rb", buffering=0) as raw:
            size_bytes = os.fstat(raw.fileno()).st_size
            first = _LENGTH_BYTES + int.from_bytes(raw.read(_LENGTH_BYTES), "little")
            if not _LENGTH_BYTES < first <= min(size_bytes, _MOST_HEAD_BYTES):
                raise ValueError(f"{size_bytes:,} bytes without a head")
            placed = _placed(json.loads(raw.read(first - _LENGTH_BYTES)), first)
        _check_whole(placed, first, size_bytes)
    except FileNotFoundError as error:
        message = "expected a file, got none of this name"
        raise refused(file, "file", message, "check how its path is written") from error
    except OSError as error:
        raise unreadable(file, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        told = str(error).partition("\n")[0].strip().rstrip(".")[:200]
        message = f"expected a whole safetensors file, got {told}"
        raise refused(file, "damaged", message, "copy it again, or make it again: it was cut off") from error
    return placed


def _placed(head: Any, first: int) -> dict[str, Placed]:
    found = {}
    for name, one in head.items():
        if name == "__metadata__":
            continue
        numbers = (*one["shape"], *one["data_offsets"])
        whole = all(type(number) is int and number >= 0 for number in numbers)
        if len(one["data_offsets"]) != 2 or not whole:
            raise ValueError(f"{name[:80]!r} without a shape and a place")
        begin, end = one["data_offsets"]
        found[name] = Placed(str(one["dtype"]), tuple(one["shape"]), first + begin, first + end)
    return found


def _check_whole(placed: Mapping[str, Placed], first: int, size_bytes: int) -> None:
    """Raise `ValueError` where tensors do not fill the file behind its head, or are not as long as said."""
    end = first
    for name, one in sorted(placed.items(), key=lambda item: item[1].start):
        if one.start != end:
            raise ValueError(f"{name[:80]!r} at byte {one.start:,} where {end:,} was the next")
        end = one.end
        item_bytes = _ITEM_BYTES.get(one.dtype)
        if one.end < one.start or (item_bytes and prod(one.shape) * item_bytes != one.end - one.start):
            raise ValueError(f"{one.end - one.start:,} bytes of {name[:80]!r}, {one.dtype} {list(one.shape)}")
    if end != size_bytes:
        raise ValueError(f"{size_bytes:,} bytes where its head says {end:,}")


def tensors_of(file: Path, names: Sequence[str]) -> dict[str, Placed]:
    """Return where the named tensors lie; raises `ForeignFileError` where a name or its dtype is missing."""
    placed = placed_in(file)
    for name in names:
        if name not in placed or placed[name].dtype not in _DTYPES:
            got = placed[name].dtype if name in placed else "none"
            raise refused(file, "layout", f"expected {name} of {', '.join(_DTYPES)}, got {got}")
    return {name: placed[name] for name in names}


def read_tensor(file: Path, placed: Placed) -> NDArray[np.generic]:
    """Return a whole tensor; raises as `read_at` does."""
    return read_at(file, placed.shape, _DTYPES[placed.dtype], placed.start)


def read_plane(file: Path, placed: Placed, number: int, *, values: bool = True) -> NDArray[np.generic]:
    """Return `tensor[number]`, the rest of it unread; raises, and takes `values`, as `read_at` does."""
    shape, dtype = placed.shape[1:], _DTYPES[placed.dtype]
    start = placed.start + number * prod(shape) * dtype.itemsize
    return read_at(file, shape, dtype, start, values=values)
