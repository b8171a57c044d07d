"""A sample's states and tokens as trainers' files hold them, read a few MiB at a time when asked for.

States come as they are stored, in the order of tokens, unshifted; several tensors stand side by side, in the
order of the wiring, as every trainer that concatenates them expects it.
"""

import threading
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.exports.format import Row, Source
from datagen.adapters.exports.torch_files import LazyTensor
from datagen.store.dtypes import NUMPY_DTYPES
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS

PIECE_BYTES = 2**20
"""About as much is held of a sample at a time: checked, hashed and written while a core's cache has it."""


class _Scratch(threading.local):
    """A thread's own memory, taken once: that of each new piece would cost as much as reading it."""

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.uint8]] = {}

    def array(self, use: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
        """Return an array whose values may be any; it is the caller's until this use is asked for again."""
        size = prod(shape) * dtype.itemsize
        held = self._held.get(use)
        if held is None or len(held) < size:
            held = self._held[use] = np.empty(size, np.uint8)
        return held[:size].view(dtype).reshape(shape)


_SCRATCH = _Scratch()


def windows(n_tokens: int, token_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the tokens of each piece, first and behind last: whole blocks, which are checksummed as such.

    >>> list(windows(200_000, 4096))[:2], list(windows(70, 2**20))
    ([(0, 256), (256, 512)], [(0, 64), (64, 70)])
    """
    step = max(PIECE_BYTES // token_bytes // BLOCK_ROWS, 1) * BLOCK_ROWS
    for first in range(0, n_tokens, step):
        yield first, min(first + step, n_tokens)


def states(source: Source, row: Row, name: str, batch: tuple[int, ...] = ()) -> LazyTensor:
    """Return one tensor, `[*batch, T, H]`."""
    return side_by_side(source, row, (name,), batch)


def side_by_side(source: Source, row: Row, names: Sequence[str], batch: tuple[int, ...] = ()) -> LazyTensor:
    """Return tensors of one dtype next to each other, `[*batch, T, k*H]`; `batch` is ones.

    What it reads is whole until the next piece is asked for, in any file of the same thread.
    """
    specs = [source.spec(name) for name in names]
    n_tokens, width = row.location.n_tokens, sum(spec.width for spec in specs)
    dtype = NUMPY_DTYPES[specs[0].dtype]

    def read() -> Iterator[NDArray[np.generic]]:
        for first, end in windows(n_tokens, width * dtype.itemsize):
            whole = _SCRATCH.array("whole", (end - first, width), dtype)
            at = 0
            for spec, name in zip(specs, names, strict=True):
                shape = (end - first, spec.width)
                rows = source.tensor(row, name, first, end, _SCRATCH.array("rows", shape, dtype))
                if len(specs) == 1:
                    whole = rows
                else:
                    whole[:, at : at + spec.width] = rows
                at += spec.width
            yield whole

    return LazyTensor(specs[0].dtype, (*batch, n_tokens, width), read)


def column(source: Source, row: Row, name: str) -> LazyTensor:
    """Return a token column, `[T]` int64."""
    return LazyTensor("int64", (row.location.n_tokens,), lambda: [source.tokens(row, name).astype(np.int64)])


def one_dtype(source: Source, names: Sequence[str], where: str) -> Iterator[Problem]:
    """Say where tensors that are to be one array have several dtypes."""
    dtypes = {name: source.spec(name).dtype for name in names}
    if len(set(dtypes.values())) > 1:
        told = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        yield Problem(
            where=where,
            kind="dtype",
            message=f"expected one dtype, since they are one array, got {told}",
            repair="make the dataset with one dtype",
        )
