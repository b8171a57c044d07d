"""One slot on its way to an answer: against its own sample's states first, then against other samples'.

What its own sample explains is settled at once; rows that are still open are kept for the other samples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.foreign_samples import ForeignSample
from datagen.checks.rows import token_errors
from datagen.checks.witness import LIMITS
from datagen.replay.identify_answer import Found, SlotAnswer
from datagen.replay.identify_norms import NormLine, norm_line
from datagen.replay.identify_problems import slot_problems, unseen_problems
from datagen.replay.identify_rows import (
    ALIKE,
    ALIKE_ROUTED,
    CLEARLY,
    PROBES,
    Assignment,
    Scattered,
    States,
    hits,
    medians,
    place_elsewhere,
    place_in_own,
    sort_out_faulty,
    spread,
)
from schemas.boundary import Place, place_of
from schemas.problem import Problem
from schemas.schema import DType

LOOSE = 0.05
"""The tolerance where it is not yet known how near two computations of this slot are."""
NEAR_ENOUGH = 0.1
"""The largest median error of a slot that is called by a name: above it, the states are another model's."""
_COARSE: tuple[DType, ...] = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Piece:
    """A slot of one tensor: `rows` `[R, H]`, cut out of a wider one where several lie side by side."""

    name: str
    rows: NDArray[np.generic]


def pieces_of(sample: ForeignSample, width: int | None) -> tuple[list[Piece], list[Problem]]:
    """Return the slots of a file, H wide each, and those that are not a multiple of H wide.

    Without a target the narrowest slot is taken for H where all others are multiples of it.
    """
    narrowest = min(slot.rows.shape[1] for slot in sample.slots)
    if width is None:
        width = narrowest if all(slot.rows.shape[1] % narrowest == 0 for slot in sample.slots) else 0
    pieces: list[Piece] = []
    problems = []
    for slot in sample.slots:
        got = slot.rows.shape[1]
        n_pieces = got // width if width else 1
        if width and got % width:
            message = f"expected a multiple of the target's width {width}, got {got}"
            problems.append(Problem(where=f"{sample.file}: {slot.name}", kind="width", message=message))
        elif n_pieces == 1:
            pieces.append(Piece(slot.name, slot.rows))
        else:
            parts = np.split(slot.rows, n_pieces, axis=1)
            pieces += [
                Piece(f"{slot.name}[:, {index * width}:{(index + 1) * width}]", np.ascontiguousarray(part))
                for index, part in enumerate(parts)
            ]
    return pieces, problems


def held_dtype(rows: NDArray[np.generic]) -> DType:
    """Return the coarsest dtype that holds the rows without loss of a bit: bfloat16 often lies in float32.

    >>> held_dtype(np.ones((1, 2), np.float32)), held_dtype(np.full((1, 2), 0.1, np.float32))
    ('bfloat16', 'float32')
    """
    if rows.dtype == np.float16:
        return "float16"
    if rows.dtype != np.float32:
        return "bfloat16"
    bits = np.ascontiguousarray(rows).view(np.uint32)
    return "float32" if (bits & np.uint32(0xFFFF)).any() else "bfloat16"


def coarser(left: DType, right: DType) -> DType:
    """Return the dtype of the two that rounds more."""
    return max(left, right, key=_COARSE.index)


def finest(dtypes: Iterable[DType]) -> DType:
    """Return the dtype that rounds least."""
    return min(dtypes, key=_COARSE.index)


@dataclass
class Rival:
    """The nearest other tensor of some rows, and how many rows said so."""

    name: str | None
    median: float | None
    n_rows: int


@dataclass
class OpenSlot:
    """A slot, what its rows were found to be so far, and the figures that are known."""

    sample: ForeignSample
    piece: Piece
    last: bool
    limit: tuple[float, float]
    """Median and 99th percentile that two computations in the coarser dtype differ by at most."""
    found: Assignment
    norms: NormLine | None
    name: str | None = None
    """The tensor that it is at its own places."""
    tolerance: float = LOOSE
    standing: NDArray[np.float32] | None = None
    """The errors of all rows at their own places, against `name`."""
    nearest: tuple[str, float] | None = None
    rivals: dict[str, Rival] = field(default_factory=dict)
    scattered: list[Scattered] = field(default_factory=list)

    @classmethod
    def of(cls, sample: ForeignSample, piece: Piece, dtype: DType, *, last: bool) -> "OpenSlot":
        """Begin with what a slot says of itself; `dtype` is the states' that it is held against."""
        found = Assignment(len(piece.rows))
        sort_out_faulty(found, piece.rows)
        limit = LIMITS[coarser(held_dtype(piece.rows), dtype)]
        return cls(sample, piece, last, limit, found, norm_line(piece.rows))

    @property
    def file(self) -> str:
        return self.sample.file

    @property
    def n_tokens(self) -> int | None:
        return None if self.sample.token_ids is None else len(self.sample.token_ids)

    @property
    def is_open(self) -> bool:
        return bool(len(self.found.open))

    def settle_in_place(self) -> None:
        """Place rows that its own sample explains where they stand, before other samples are asked.

        The first token is the same in many samples, and so is its state: it is still this one's own.
        """
        own = [few for few in self.scattered if few.file is None and few.offset == 0]
        self.scattered = [few for few in self.scattered if all(few is not one for one in own)]
        self._put(own)

    def _put(self, scattered: Sequence[Scattered]) -> None:
        for few in scattered:
            still = np.isin(few.rows, self.found.open)
            self.found.put(
                few.rows[still],
                few.kind,
                few.errors[still],
                name=few.name,
                file=few.file,
                offset=few.offset,
            )

    def let_go(self) -> None:
        """Drop the rows once all of them are explained: a folder of files is larger than memory."""
        if not self.is_open:
            rows = self.piece.rows
            self.piece = Piece(self.piece.name, np.empty((0, rows.shape[1]), rows.dtype))

    def hold_against_own(self, states: States) -> None:
        """Find the name at the rows' own places, then every row that the same sample explains."""
        rows = self.piece.rows
        n_known = len(next(iter(states.values())))
        if self.n_tokens is not None and n_known < self.n_tokens:
            beyond = self.found.open
            self.found.put(beyond[beyond >= n_known], "unseen")
        self._name_in_place(states, n_known)
        if self.name is not None:
            place_in_own(self.found, rows, states, self.name, self.tolerance)
            self._place_elsewhere(states, self.name, None)
        self._place_by_hits(states, None)
        self._know_rival(states, None)
        if self.name is not None:
            held = np.arange(min(len(rows), n_known))
            held = held[~np.isin(held, self.found.of("not finite"))]
            self.standing = np.full(len(rows), np.inf, np.float32)
            self.standing[held] = token_errors(rows[held], states[self.name][held])

    def _name_in_place(self, states: States, n_known: int) -> None:
        candidates = self.found.open
        probes = spread(candidates[candidates < n_known], PROBES)
        if not len(probes):
            return
        errors = medians(self.piece.rows[probes], states, probes)
        best, *others = sorted(errors, key=errors.__getitem__)
        self.nearest = best, errors[best]
        rival = errors[others[0]] if others else np.inf
        if errors[best] <= NEAR_ENOUGH and errors[best] * CLEARLY <= rival:
            self.name = best
            self.tolerance = max(self.limit[1], min(4 * errors[best], rival / 2, ALIKE))

    def hold_against_other(self, label: str, states: States) -> None:
        """Look for the rows that are still open among another sample's states."""
        if self.name is not None:
            self._place_elsewhere(states, self.name, label)
        self._place_by_hits(states, label)
        self._know_rival(states, label)

    def _place_by_hits(self, states: States, label: str | None) -> None:
        """Look for the open rows at every place of every tensor that some of them hit."""
        probes = spread(self.found.open, PROBES)
        if len(probes):
            for name in hits(self.piece.rows[probes], states, self.tolerance):
                self._place_elsewhere(states, name, label)

    def _place_elsewhere(self, states: States, name: str, label: str | None) -> None:
        rows = self.piece.rows
        self.scattered += place_elsewhere(self.found, rows, states[name], name, self.tolerance, label)

    def _know_rival(self, states: States, label: str | None) -> None:
        """Hold rows that were found in these states against every other tensor of theirs."""
        mine = np.array([file == label for file in self.found.files], bool)
        placed = mine & np.isin(self.found.kinds.astype(str), ("right", "moved", "sample"))
        for name in {*self.found.names[placed]} if placed.any() else ():
            chosen = spread(np.flatnonzero(placed & (self.found.names == name)).astype(np.int64), PROBES)
            known = self.rivals.get(name)
            if known is not None and known.n_rows >= len(chosen):
                continue
            others = [other for other in states if other != name]
            errors = medians(self.piece.rows[chosen], states, chosen + self.found.offsets[chosen], others)
            nearest = min(errors, key=errors.__getitem__, default=None)
            self.rivals[name] = Rival(nearest, None if nearest is None else errors[nearest], len(chosen))

    def answer(self, n_layers: int, *, routes: bool) -> SlotAnswer:
        """Return what was found, and everything that is wrong with it."""
        self._settle(ALIKE_ROUTED if routes else ALIKE)
        found = self._found(n_layers)
        runs = self.found.runs()
        return SlotAnswer(
            file=self.file,
            slot=self.piece.name,
            layout=self.sample.layout,
            dtype=self.piece.rows.dtype.name,
            n_rows=len(self.found.kinds),
            n_tokens=self.n_tokens,
            width=self.piece.rows.shape[1],
            norms=self.norms,
            found=found,
            runs=runs,
            allowed=(),
            problems=tuple(self._problems(found, routes)),
        )

    def _problems(self, found: Found | None, routes: bool) -> Iterator[Problem]:
        if self.sample.token_ids is None and (files := {*self.found.files} - {None}):
            message = f"its rows are of the tokens of {', '.join(sorted(files))}"
            yield Problem(
                where=f"{self.file}: {self.piece.name}", kind="token_ids", message=message, severity="note"
            )
        if self.sample.claims and found is not None and found.name != self.piece.name:
            message = f"expected {self.piece.name}, got the states of {found.name} ({found.median:.2%} off)"
            yield Problem(
                where=f"{self.file}: {self.piece.name}",
                kind="misnamed",
                message=message,
                expected=self.piece.name,
                got=found.name,
            )
        yield from unseen_problems(f"{self.file}: {self.piece.name}", self.found)
        yield from slot_problems(
            f"{self.file}: {self.piece.name}",
            self.found,
            found,
            self.n_tokens,
            nearest=self.nearest,
            limit=self.limit,
            routes=routes,
            expected=self.sample.last if self.last else None,
            layout=self.sample.layout,
        )

    def _settle(self, alike: float) -> None:
        """Give the slot the name of most of its rows; what is another tensor's in place is so called.

        Rows that nothing explains are its own all the same up to the error `alike`.
        """
        found = self.found
        self._put(self.scattered)
        placed = found.of("right", "moved", "sample")
        counts: Mapping[str, int] = {
            name: int((found.names[placed] == name).sum()) for name in {*found.names[placed]}
        }
        if self.name is None and counts:
            self.name = max(sorted(counts), key=counts.__getitem__)
        other = placed[(found.names[placed] != self.name) & np.isin(found.kinds[placed], ("right", "moved"))]
        found.kinds[other] = "layer"
        if self.sample.token_ids is None:
            alone = {*found.files[found.of("sample")]}
            whole = found.of("sample")
            if len(alone) == 1 and not found.offsets[whole].any():
                found.kinds[whole] = "right"
        if self.standing is not None:
            rest = found.open
            near = rest[self.standing[rest] <= alike]
            found.put(near, "off", self.standing[near], name=self.name)

    def _found(self, n_layers: int) -> Found | None:
        found = self.found
        if self.name is None:
            return None
        mine = found.of("right", "moved", "sample", "off")
        mine = mine[found.names[mine] == self.name]
        place = place_of(self.name, n_layers)
        if not len(mine) or not isinstance(place, Place):
            return None
        median, p99 = np.quantile(found.errors[mine].astype(np.float64), [0.5, 0.99])
        standing: tuple[float, ...] | None = None
        if self.standing is not None:
            known = self.standing[np.isfinite(self.standing)].astype(np.float64)
            standing = tuple(map(float, np.quantile(known, [0.5, 0.99]))) if len(known) else None
        rival = self.rivals.get(self.name)
        return Found(
            name=self.name,
            place=place,
            n_rows=len(mine),
            median=float(median),
            p99=float(p99),
            standing=standing[0] if standing else None,
            standing_p99=standing[1] if standing else None,
            rival=rival.name if rival else None,
            rival_median=rival.median if rival else None,
        )
