"""The allocator is told to keep what is freed: a loader's batch then lies where the one before it lay.

A batch of a large model is hundreds of megabytes. The GNU C library takes what is larger than 32 MiB from
the kernel each time and gives it back, and its fresh pages cost more than the bytes that are copied into
them: two thirds of the time of speculators' own loader of files. Huge pages make them fewer, but the kernel
must find them, at times by moving others. Source: mallopt(3), malloc_trim(3).

What is kept would grow to three times what is in use, where the lengths of samples differ: of a freed block
the best part is taken, and the rest is left between others. So it is bounded.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

SAID = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
TUNABLES, OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."
"""The environment's own words about this; where there are any, it is left at them."""
GROWTH_BYTES = 1 << 30
"""A process gives back all that it freed when it grew by so much since it last did."""
LOOK_BYTES = GROWTH_BYTES // 16
"""Its size is looked at once so much was read: a look costs as much as a tenth of reading a small sample."""

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_END_KEPT_BYTES = 2**31 - 1
"""Kept at the end of the heap by itself: the most that mallopt can be told."""
_PAGES = Path("/proc/self/statm")


class KeptMemory:
    """What this process keeps of what it freed; safe for threads."""

    def __init__(self, trim: Callable[[int], int]) -> None:
        self._trim = trim
        self._before = own_bytes()
        self._unseen = 0

    def bound(self, n_bytes: int) -> None:
        """Give back what is free if it may have become much; `n_bytes` were read since the last call."""
        self._unseen += n_bytes
        if self._unseen < LOOK_BYTES:
            return
        self._unseen = 0
        if own_bytes() - self._before > GROWTH_BYTES:
            self._trim(0)
            self._before = own_bytes()


def keep_freed_memory() -> KeptMemory | None:
    """Keep freed memory in this process from now on, and return what bounds it, where that was done.

    It is not where the environment says otherwise, nor where the C library knows no such thing. Kept is what
    a process's first thread takes, which makes the batches, in a worker as well as without one.
    """
    if OF_MALLOC in os.environ.get(TUNABLES, "") or any(name in os.environ for name in SAID):
        return None
    library = ctypes.CDLL(None)
    mallopt, trim = getattr(library, "mallopt", None), getattr(library, "malloc_trim", None)
    if mallopt is None or trim is None or not _PAGES.exists():
        return None
    if not (mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _END_KEPT_BYTES)):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return KeptMemory(trim)


def own_bytes() -> int:
    """Return the memory that this process alone has resident: no file's pages, and none that is shared.

    Source: proc_pid_statm(5).
    """
    resident, shared = map(int, _PAGES.read_bytes().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
