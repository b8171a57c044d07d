"""A safetensors file whose tensors are read where they lie, when they are used.

The library itself says first whether the file is whole: that what the head names lies in it, without a gap.
Then a tensor, or one sample's part of it, is read at its place; safetensors' own reader maps the file.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from datagen.adapters.read_at import read_at
from datagen.adapters.safe_loading import refused
from datagen.store.dtypes import NUMPY_DTYPES

_LENGTH_BYTES = 8
_DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "BF16": NUMPY_DTYPES["bfloat16"],
    "F16": NUMPY_DTYPES["float16"],
    "F32": NUMPY_DTYPES["float32"],
    "I32": NUMPY_DTYPES["int32"],
    "I64": NUMPY_DTYPES["int64"],
}


class Placed(NamedTuple):
    """A tensor of a file: its dtype as safetensors names it, its shape, the byte where it begins."""

    dtype: str
    shape: tuple[int, ...]
    start: int


def placed_in(file: Path) -> dict[str, Placed]:
    """Return what a file holds; raises `ForeignFileError` for one that is not there or is not whole."""
    try:
        with safe_open(file, framework="np"):
            pass  # it compares the head with the file's length
        with open(file, "rb") as raw:
            head_bytes = int.from_bytes(raw.read(_LENGTH_BYTES), "little")
            head = json.loads(raw.read(head_bytes))
    except (SafetensorError, OSError, ValueError) as error:
        told = str(error).partition("\n")[0].strip().rstrip(".")[:200]
        message = f"expected a whole safetensors file, got {told}"
        raise refused(file, "damaged", message, "copy it again: it was cut off") from error
    first = _LENGTH_BYTES + head_bytes
    return {
        name: Placed(one["dtype"], tuple(one["shape"]), first + one["data_offsets"][0])
        for name, one in head.items()
        if name != "__metadata__"
    }


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
