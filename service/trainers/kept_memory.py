"""The allocator is told to keep what is freed: a loader's batch then lies where the one before it lay.

A batch of a large model is hundreds of megabytes. The GNU C library takes what is larger than 32 MiB from
the kernel each time and gives it back, and its fresh pages cost more than the bytes that are copied into
them: two thirds of the time of speculators' own loader of files. Huge pages make them fewer, but the kernel
must find them, at times by moving others. Source: mallopt(3).
"""

import ctypes
import os

SAID = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
TUNABLES, OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."
"""The environment's own words about this; where there are any, it is left at them."""

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_KEPT_BYTES = 2**31 - 1
"""Kept at the end of the heap, at most: the most that mallopt can be told."""


def keep_freed_memory() -> bool:
    """Keep freed memory in this process from now on; return whether that was done.

    It is not where the environment says otherwise, nor where the C library knows no such thing. Kept is what
    a process's first thread takes, which makes the batches, in a worker as well as without one.
    """
    if OF_MALLOC in os.environ.get(TUNABLES, "") or any(name in os.environ for name in SAID):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
