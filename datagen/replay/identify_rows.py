"""Where the rows of a slot come from: each against the target's own states, and what explains the others.

Shapes: R rows of a slot, T tokens of the states that they are held against, H the width. An *offset* is how
far a row is from its place: row i with offset 1 holds the state of token i+1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.checks.rows import row_norms, token_errors, wide

States = Mapping[str, NDArray[np.generic]]
Indices = NDArray[np.int64]

Kind = Literal["right", "moved", "layer", "sample", "off", "nothing", "zeros", "not finite", "unseen"]

CLEARLY = 3.0
"""How many times nearer one explanation must be than another to be taken for it."""
PROBES = 96
"""Rows of a slot that are held against every tensor."""
ALIKE = 0.25
"""The largest error of a row that is still its own tensor's: a router's choice between two experts was seen
to cost 17%. Another sample's rows are off by about as much as they are long."""
ALIKE_ROUTED = 0.6
"""The same with experts, of a few rows: 40% was seen of a tiny model between bfloat16 and float32."""
TOGETHER = 0.1
"""The share of the rows looked for that must have one offset: a token's `embed` is the same everywhere."""
_CHUNK = 512


@dataclass(frozen=True)
class Run:
    """Rows `first` to `last` (both included) of one kind; `name`, `file` and `offset` say whose they are."""

    first: int
    last: int
    kind: Kind
    name: str | None = None
    file: str | None = None
    offset: int = 0

    @property
    def n_rows(self) -> int:
        return self.last - self.first + 1


class Scattered(NamedTuple):
    """Rows that a few states explain, each on its own: to be placed where nothing better is found."""

    rows: Indices
    kind: Kind
    errors: NDArray[np.float32]
    name: str
    file: str | None
    offset: int


class Assignment:
    """What each row of a slot was found to be; rows that nothing explains yet are `open`."""

    def __init__(self, n_rows: int) -> None:
        self.kinds: NDArray[np.object_] = np.full(n_rows, "nothing", object)
        self.names: NDArray[np.object_] = np.full(n_rows, None, object)
        self.files: NDArray[np.object_] = np.full(n_rows, None, object)
        self.offsets: Indices = np.zeros(n_rows, np.int64)
        self.errors: NDArray[np.float32] = np.full(n_rows, np.inf, np.float32)

    def put(
        self,
        rows: Indices,
        kind: Kind,
        errors: NDArray[np.float32] | float = np.inf,
        *,
        name: str | None = None,
        file: str | None = None,
        offset: int = 0,
    ) -> None:
        """Say what `rows` are."""
        self.kinds[rows], self.names[rows], self.files[rows] = kind, name, file
        self.offsets[rows], self.errors[rows] = offset, errors

    def of(self, *kinds: Kind) -> Indices:
        """Return the rows of these kinds."""
        return np.flatnonzero(np.isin(self.kinds.astype(str), kinds)).astype(np.int64)

    @property
    def open(self) -> Indices:
        """The rows that nothing explains yet."""
        return self.of("nothing")

    def runs(self) -> tuple[Run, ...]:
        """Return the rows as runs of neighbours that are the same."""
        runs: list[Run] = []
        whole = zip(self.kinds, self.names, self.files, self.offsets.tolist(), strict=True)
        for row, (kind, name, file, offset) in enumerate(whole):
            before = runs[-1] if runs else None
            if before and (before.kind, before.name, before.file, before.offset) == (
                kind,
                name,
                file,
                offset,
            ):
                runs[-1] = Run(before.first, row, kind, name, file, offset)
            else:
                runs.append(Run(row, row, kind, name, file, offset))
        return tuple(runs)


def spread(indices: Indices, at_most: int) -> Indices:
    """Return at most so many of `indices`, evenly spread."""
    if len(indices) <= at_most:
        return indices
    return indices[np.linspace(0, len(indices) - 1, at_most).astype(np.int64)]


def medians(
    rows: NDArray[np.generic], states: States, places: Indices, names: Sequence[str] | None = None
) -> dict[str, float]:
    """Return the median error of `rows` `[R, H]` against each tensor's rows at `places` `[R]`."""
    return {
        name: float(np.median(token_errors(rows, states[name][places]))) for name in names or tuple(states)
    }


def place_in_own(
    found: Assignment, rows: NDArray[np.generic], states: States, name: str, tolerance: float
) -> None:
    """Say of each row that has a place in its sample's states whether it is `name` there; the rest is open.

    A row within the tolerance is still another tensor's where that one is clearly nearer, and its own error
    stands out of the slot's.
    """
    n_tokens = len(states[name])
    candidates = found.open
    candidates = candidates[candidates < n_tokens]
    if not len(candidates):
        return
    errors = token_errors(rows[candidates], states[name][candidates])
    near = errors <= tolerance
    usual = float(np.median(errors[near])) if near.any() else 0.0
    found.put(candidates[near], "right", errors[near], name=name)
    doubtful = errors > CLEARLY * usual
    if not doubtful.any():
        return
    asked, own = candidates[doubtful], errors[doubtful]
    others = [other for other in states if other != name]
    against = np.stack([token_errors(rows[asked], states[other][asked]) for other in others])
    nearest, best = against.argmin(axis=0), against.min(axis=0)
    nearer = (best <= tolerance) & (best * CLEARLY < own)
    for index in np.unique(nearest[nearer]):
        chosen = nearer & (nearest == index)
        found.put(asked[chosen], "layer", best[chosen], name=others[int(index)])


def place_elsewhere(
    found: Assignment,
    rows: NDArray[np.generic],
    states: NDArray[np.generic],
    name: str,
    tolerance: float,
    file: str | None = None,
) -> list[Scattered]:
    """Look for each open row at every place of a tensor's `states` `[T, H]`; `file` where they are another's.

    Rows that have several places (a token that comes twice has one `embed`) go with the most of the others.
    Rows that stand alone with their offset are returned, not placed: other states may explain many at once.
    """
    asked = found.open
    scattered: list[Scattered] = []
    if not len(asked):
        return scattered
    pairs = np.concatenate([*_pairs(asked, rows, states, tolerance), np.empty((0, 2), np.int64)])
    while len(pairs):
        offsets, counts = np.unique(pairs[:, 1] - pairs[:, 0], return_counts=True)
        most = offsets[counts == counts.max()]
        offset = int(most[np.abs(most).argmin()])
        chosen = pairs[pairs[:, 1] - pairs[:, 0] == offset]
        errors = token_errors(rows[chosen[:, 0]], states[chosen[:, 1]])
        kind: Kind = "sample" if file is not None else "moved" if offset else "right"
        if len(chosen) >= TOGETHER * len(asked):
            found.put(chosen[:, 0], kind, errors, name=name, file=file, offset=offset)
        else:
            scattered.append(Scattered(chosen[:, 0], kind, errors, name, file, offset))
        pairs = pairs[~np.isin(pairs[:, 0], chosen[:, 0])]
    return scattered


def _pairs(
    asked: Indices, rows: NDArray[np.generic], states: NDArray[np.generic], tolerance: float
) -> Iterator[Indices]:
    """Yield (row, place) `[n, 2]` wherever a row is within the tolerance of the state at a place."""
    there = wide(states).astype(np.float64)
    squares = np.einsum("th,th->t", there, there)
    for start in range(0, len(asked), _CHUNK):
        chunk = asked[start : start + _CHUNK]
        mine = wide(rows[chunk]).astype(np.float64)
        distances = np.einsum("rh,rh->r", mine, mine)[:, None] + squares - 2 * mine @ there.T
        near = distances <= np.maximum(squares, 1e-40) * tolerance**2
        row, place = np.nonzero(near)
        yield np.stack([chunk[row], place.astype(np.int64)], axis=1)


def hits(rows: NDArray[np.generic], states: States, tolerance: float) -> dict[str, int]:
    """Return of how many `rows` `[R, H]` each tensor has the nearest state at any place; the most first.

    Rows farther than the tolerance from every state are nobody's.
    """
    mine = wide(rows).astype(np.float64)
    own = np.einsum("rh,rh->r", mine, mine)[:, None]
    nearest = np.full((len(states), len(rows)), np.inf)
    for index, tensor in enumerate(states.values()):
        there = wide(tensor).astype(np.float64)
        squares = np.einsum("th,th->t", there, there)
        distances = np.maximum(own + squares - 2 * mine @ there.T, 0) / np.maximum(squares, 1e-40)
        nearest[index] = distances.min(axis=1)
    names = list(states)
    best = nearest.argmin(axis=0)[nearest.min(axis=0) <= tolerance**2]
    counts = np.bincount(best, minlength=len(names))
    return {names[index]: int(counts[index]) for index in np.argsort(-counts, kind="stable") if counts[index]}


def sort_out_faulty(found: Assignment, rows: NDArray[np.generic]) -> None:
    """Say which rows hold NaN or Inf, and which are zeros: they are compared with nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        norms = row_norms(wide(rows))
        not_finite = ~np.isfinite(wide(rows)).all(axis=1)
    found.put(np.flatnonzero(not_finite), "not finite")
    found.put(np.flatnonzero((norms == 0) & ~not_finite), "zeros")
