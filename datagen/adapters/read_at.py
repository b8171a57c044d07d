"""Arrays read at their place in somebody's file, never mapped.

A file that another process cuts while it is mapped kills the process that reads it; so it ends one sample.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from datagen.adapters.errors import refused


def read_at(
    file: Path, shape: Sequence[int], dtype: DTypeLike, start: int, *, values: bool = True
) -> NDArray[np.generic]:
    """Return the array that begins at byte `start`; raises `ForeignFileError` where the file ends before it.

    Without `values` nothing is read: an array of that shape and dtype, whose values say nothing.
    """
    if not values:
        return np.broadcast_to(np.zeros((), dtype), tuple(shape))
    array = np.empty(tuple(shape), dtype)
    rest = array.reshape(-1).view(np.uint8).data
    n_bytes = len(rest)
    try:
        with open(file, "rb", buffering=0) as source:
            while rest and (got := os.preadv(source.fileno(), [rest], start + n_bytes - len(rest))):
                rest = rest[got:]
    except FileNotFoundError as error:
        raise refused(file, "file", "expected a file, got none of this name") from error
    except OSError as error:
        message = (
            f"expected {n_bytes:,} bytes from byte {start:,}, got: {os.strerror(error.errno or 0).lower()}"
        )
        raise refused(file, "damaged", message, "look at the disk that it lies on") from error
    if rest:
        message = f"expected {n_bytes:,} bytes from byte {start:,}, got {n_bytes - len(rest):,}"
        raise refused(file, "damaged", message, "copy it again: it was cut off")
    return array
