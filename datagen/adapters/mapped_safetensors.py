"""A safetensors file whose tensors are read where they lie, when they are used.

The library itself says first whether the file is whole: that what the head names lies in it, without a gap.
Then a tensor is a view of the mapped file, of a dtype that numpy has; safetensors' own reader copies.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

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


def map_tensors(file: Path, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return views of the named tensors; raises `ForeignFileError` where a name or its dtype is missing."""
    placed = placed_in(file)
    for name in names:
        if name not in placed or placed[name].dtype not in _DTYPES:
            got = placed[name].dtype if name in placed else "none"
            raise refused(file, "layout", f"expected {name} of {', '.join(_DTYPES)}, got {got}")
    data = np.memmap(file, np.uint8, "r").data
    return {
        name: np.ndarray(placed[name].shape, _DTYPES[placed[name].dtype], data, placed[name].start)
        for name in names
    }
