"""Writes all of a buffer to a descriptor, in calls for which the kernel need not move memory about."""

import os

from datagen.store.door import Buffer

WRITE_BYTES = 2**18
"""At most in one call: for more a kernel with large folios (ext4 since 6.16) seeks whole MiB of memory in one
piece, and moves other pages about for it, which was seen to cost seven times the write itself."""


def write_all(fd: int, data: Buffer) -> int:
    """Write every byte of `data` and return how many; raises `OSError` where the disk takes no more."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.write(fd, view[done : done + WRITE_BYTES])
    return done
