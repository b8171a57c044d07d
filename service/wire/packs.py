"""Packs: the batches of an epoch, formed once from the lengths, for all ranks together.

A pack is a run of consecutive samples of the epoch order, closed when the next sample would leave its budget
of tokens or of samples. Packs know nothing of ranks: each step of a world of `w` ranks takes the `w` packs
from the global position on, rank `r` the `r`-th of them. So a trainer's whole state is one position in the
packs of an epoch, and ranks, workers and world size may change at any step.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Tail = Literal["pad", "drop"]
"""What becomes of an epoch's last packs when they do not go round: the first packs again, or left out."""


class Turn(NamedTuple):
    """One rank's pack of a step; `is_padding` when the pack was given in this epoch before."""

    pack: int
    is_padding: bool


def pack_starts(
    lengths: NDArray[np.integer], max_tokens: int | None, max_samples: int | None
) -> NDArray[np.int64]:
    """Return `[n_packs + 1]`: the position of the first sample of each pack, and the end.

    `lengths` are tokens in the epoch's order. Raises `ValueError` when a sample alone is over `max_tokens`,
    and when neither limit is given.

    >>> pack_starts(np.array([3, 3, 3, 5, 1]), 6, None).tolist()
    [0, 2, 3, 5]
    """
    n = len(lengths)
    if max_tokens is None and max_samples is None:
        raise ValueError("expected a limit of tokens or of samples, got none")
    if max_tokens is not None and n and int(lengths.max()) > max_tokens:
        raise ValueError(f"expected samples of at most {max_tokens} tokens, got one of {int(lengths.max())}")
    if max_tokens is None:
        return np.unique(np.append(np.arange(0, n, max_samples, dtype=np.int64), n))
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = [0] if n else []
    at = 0
    while at < n:
        before = int(ends[at - 1]) if at else 0
        stop = int(np.searchsorted(ends, before + max_tokens, side="right"))
        at = stop if max_samples is None else min(stop, at + max_samples)
        starts.append(at)
    return np.array(starts or [0], np.int64)


def n_steps(n_packs: int, position: int, world_size: int, tail: Tail) -> int:
    """Return how many steps an epoch still has from `position` on."""
    left = max(0, n_packs - position)
    return left // world_size if tail == "drop" else -(-left // world_size)


def turn(n_packs: int, position: int, rank: int, world_size: int, tail: Tail) -> Turn | None:
    """Return a rank's pack of the step at `position`, or `None` when the epoch is over for all ranks.

    With `pad` a rank beyond the last pack is given the epoch's first packs again, round and round.

    >>> [turn(5, 4, rank, 3, "pad") for rank in range(3)]
    [Turn(pack=4, is_padding=False), Turn(pack=0, is_padding=True), Turn(pack=1, is_padding=True)]
    >>> turn(5, 4, 0, 3, "drop") is None
    True
    """
    if not n_steps(n_packs, position, world_size, tail):
        return None
    pack = position + rank
    return Turn(pack % n_packs, pack >= n_packs)
