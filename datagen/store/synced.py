"""Files and folders that are on the disk before anything is said of them."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_SYNCED_AT_ONCE = 16


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk; raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(paths: Sequence[Path]) -> None:
    """Sync files and folders at once: a disk takes as long for one as for those that wait with it."""
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        list(pool.map(sync, paths))
