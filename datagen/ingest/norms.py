"""The norms of a slot's rows, a few rows at a time: their wide copy stays in the cache."""

import numpy as np
from numpy.typing import NDArray

from datagen.checks.rows import row_norms, wide

_ROWS = 128


def norms_of(rows: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the L2 norm of each row, `[T]`; NaN or Inf where a row is not finite."""
    norms = np.empty(len(rows), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(rows), _ROWS):
            block = slice(first, first + _ROWS)
            norms[block] = row_norms(wide(rows[block]))
    return norms
