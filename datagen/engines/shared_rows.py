"""Hands arrays from one process to another of the same host through shared memory.

A file under `/dev/shm` is filled by one, mapped by the other and unlinked at once: the memory goes when the
last array on it is dropped. It is allocated before it is written, so that a full `/dev/shm` is an error here
and not a dead process. What a process leaves that is killed is known by its name (`owned_names`).
"""

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.engines.owned_names import PREFIX, left_by_the_dead

SHARED = Path("/dev/shm")
_ALIGNED = 64


class Lying(NamedTuple):
    """One array in a segment: where it begins in bytes, its shape, and the name of its bits' dtype."""

    start: int
    shape: tuple[int, ...]
    bits: str


class Segment(NamedTuple):
    """Arrays in shared memory, as the one process tells the other."""

    path: str
    size: int
    arrays: dict[str, Lying]


def lay_out(name: str, arrays: Mapping[str, NDArray[np.generic]], folder: Path = SHARED) -> Segment:
    """Copy C-contiguous `arrays` of numpy's own dtypes to a new segment `name`.

    Raises OSError where there is no room, or a segment of that name is there.
    """
    lying: dict[str, Lying] = {}
    size = 0
    for key, array in arrays.items():
        lying[key] = Lying(size, array.shape, array.dtype.name)
        size += -(-array.nbytes // _ALIGNED) * _ALIGNED
    path = folder / name
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(handle, 0, max(size, _ALIGNED))
        with mmap.mmap(handle, max(size, _ALIGNED)) as memory:
            for key, array in arrays.items():
                start = lying[key].start
                memory[start : start + array.nbytes] = array.tobytes()
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(handle)
    return Segment(str(path), max(size, _ALIGNED), lying)


def lay_out_all(
    prefix: str, laid: Iterable[tuple[str, Mapping[str, NDArray[np.generic]]]], folder: Path = SHARED
) -> dict[str, Segment]:
    """Copy several to a segment each, which is named by `prefix` and its key: all of them, or none is left.

    Raises OSError as `lay_out` does.
    """
    segments: dict[str, Segment] = {}
    try:
        for key, arrays in laid:
            segments[key] = lay_out(f"{prefix}{key}", arrays, folder)
    except BaseException:
        drop(segments.values())
        raise
    return segments


def drop(segments: Iterable[Segment]) -> None:
    """Unlink segments that are not taken up any more; those that were are gone already."""
    for segment in segments:
        Path(segment.path).unlink(missing_ok=True)


def take_up(segment: Segment) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a segment, on its memory, and unlink it.

    Raises OSError when it is not there.
    """
    handle = os.open(segment.path, os.O_RDWR)
    try:
        memory = mmap.mmap(handle, segment.size)
    finally:
        os.close(handle)
        os.unlink(segment.path)
    arrays: dict[str, NDArray[np.generic]] = {}
    for key, (start, shape, bits) in segment.arrays.items():
        kind = np.dtype(bits)
        count = int(np.prod(shape))
        arrays[key] = np.frombuffer(memory, kind, count, start).reshape(shape)
    return arrays


def sweep(prefix: str, folder: Path = SHARED) -> list[str]:
    """Unlink the segments that begin with `prefix`, which nobody took up, and return their names."""
    return _unlinked(path for path in folder.glob(f"{prefix}*"))


def sweep_the_dead(folder: Path = SHARED) -> list[str]:
    """Unlink the segments that processes of this host left which are no more, and return their names."""
    return _unlinked(path for path in folder.glob(f"{PREFIX}-*") if left_by_the_dead(path.name))


def _unlinked(paths: Iterable[Path]) -> list[str]:
    left = sorted(paths)
    for path in left:
        path.unlink(missing_ok=True)
    return [path.name for path in left]
