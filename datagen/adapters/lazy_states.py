"""A sample's states and tokens as trainers' files hold them, read a few MiB at a time when asked for.

States come as they are stored, in the order of tokens, unshifted; several tensors stand side by side, in the
order of the wiring, as every trainer that concatenates them expects it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.exporting import Row, Source
from datagen.adapters.torch_files import LazyTensor
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS

PIECE_BYTES = 8 * 2**20
"""About as much is held of a sample at a time."""


def windows(n_tokens: int, token_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the tokens of each piece, first and behind last: whole blocks, which are checksummed as such.

    >>> list(windows(200_000, 4096))[:2], list(windows(70, 2**20))
    ([(0, 2048), (2048, 4096)], [(0, 64), (64, 70)])
    """
    step = max(PIECE_BYTES // token_bytes // BLOCK_ROWS, 1) * BLOCK_ROWS
    for first in range(0, n_tokens, step):
        yield first, min(first + step, n_tokens)


def states(source: Source, row: Row, name: str, batch: tuple[int, ...] = ()) -> LazyTensor:
    """Return one tensor, `[*batch, T, H]`."""
    return side_by_side(source, row, (name,), batch)


def side_by_side(source: Source, row: Row, names: Sequence[str], batch: tuple[int, ...] = ()) -> LazyTensor:
    """Return tensors of one dtype next to each other, `[*batch, T, k*H]`; `batch` is ones."""
    specs = [source.spec(name) for name in names]
    n_tokens, token_bytes = row.location.n_tokens, sum(spec.row_bytes for spec in specs)

    def read() -> Iterator[NDArray[np.generic]]:
        for first, end in windows(n_tokens, token_bytes):
            parts = [source.tensor(row, name, first, end) for name in names]
            yield parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    return LazyTensor(specs[0].dtype, (*batch, n_tokens, sum(spec.width for spec in specs)), read)


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
