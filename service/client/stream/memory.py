"""Memory for batches, used again when no tensor looks into it any more: fresh pages cost as much as reading.

Pinned memory comes from torch's own cache of it, which also knows which copies to a device still run.
"""

import math
import weakref
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

KEPT = 4
"""Buffers that are kept for later, at most, unless said otherwise."""


class Memory:
    """Hands out uint8 tensors; safe for threads, and for one process."""

    def __init__(self, *, pinned: bool = False, kept: int = KEPT) -> None:
        self.pinned = pinned
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=kept)

    def take(self, n_bytes: int) -> torch.Tensor:
        """Return `[n_bytes]` uint8, its content whatever it was; its memory is used again when it is gone."""
        if self.pinned:
            return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)
        if not n_bytes:
            return torch.empty(0, dtype=torch.uint8)
        buffer = self._used_before(n_bytes)
        if buffer is None:
            buffer = np.empty(rounded(n_bytes), np.uint8)
        view = buffer[:n_bytes]
        # torch holds this very view for as long as any tensor shares its memory.
        weakref.finalize(view, self._free.append, buffer).atexit = False
        return torch.from_numpy(view)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of a shape, its content whatever it was."""
        n_bytes = math.prod(shape) * dtype.itemsize
        return self.take(n_bytes).view(dtype).view(shape)

    def _used_before(self, n_bytes: int) -> NDArray[np.uint8] | None:
        """Return what was used last and is large enough: it may still lie in the processor's cache."""
        for _ in range(len(self._free)):
            try:
                buffer = self._free.pop()
            except IndexError:  # another thread took it
                return None
            if n_bytes <= len(buffer) <= 2 * rounded(n_bytes):
                return buffer
            self._free.appendleft(buffer)
        return None


def rounded(n_bytes: int) -> int:
    """Return the next size that buffers come in: an eighth of a power of two apart.

    >>> [rounded(n) for n in (1, 9, 1000, 1025)]
    [1, 9, 1024, 1152]
    """
    step = max(1, 1 << max(0, n_bytes.bit_length() - 4))
    return -(-n_bytes // step) * step
