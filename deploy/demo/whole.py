"""A file or folder is there whole, or not at all.

The maker works in a hidden sibling, which is renamed to its place as the last step: a kill at any moment
leaves nothing that a later run takes for done. A lock beside it lets one maker work at a time; the kernel
drops it with the process, and the next maker sweeps away what a killed one left.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def making(place: Path) -> Iterator[Path | None]:
    """Yield a path to make `place` under, or None when it is there; rename it when the block ends well.

    The yielded path does not exist yet: make a file or a folder there. When the block raises, it is removed.
    Raises `FileNotFoundError` when the block ends without having made anything.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / f".{place.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            yield None
            return
        partial = place.parent / f".{place.name}.partial"
        _remove(partial)
        try:
            yield partial
            os.rename(partial, place)
        finally:
            _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
