"""What an identification answers: which tensor each slot is, by what margin, and whose rows it holds."""

from dataclasses import dataclass

from datagen.replay.identify_norms import NormLine
from datagen.replay.identify_rows import Run
from schemas.boundary import Place
from schemas.problem import Problem
from schemas.target import Target


@dataclass(frozen=True)
class Found:
    """The tensor that a slot is, and the nearest other one.

    `median` and `p99` are relative errors by token over the rows that were found to be this tensor's,
    wherever they were found; `standing` and `standing_p99` over all rows at their own places, foreign ones
    included (`None` where only another sample's states explain the slot). `rival_median` is the error of the
    same rows against the nearest other tensor.
    """

    name: str
    place: Place
    n_rows: int
    median: float
    p99: float
    standing: float | None
    standing_p99: float | None
    rival: str | None
    rival_median: float | None

    @property
    def margin(self) -> float | None:
        """How many times farther the nearest other tensor is; `None` where this one's error is zero."""
        return self.rival_median / self.median if self.rival_median is not None and self.median > 0 else None


@dataclass(frozen=True)
class SlotAnswer:
    """One slot of one file: R rows, and T token ids (`None` in a file without)."""

    file: str
    slot: str
    layout: str
    dtype: str
    n_rows: int
    n_tokens: int | None
    width: int
    norms: NormLine | None
    found: Found | None
    runs: tuple[Run, ...]
    allowed: tuple[str, ...]
    """What norms alone allow, where there is nothing to compare with."""
    problems: tuple[Problem, ...]

    @property
    def where(self) -> str:
        """The slot as a problem names it."""
        return f"{self.file}: {self.slot}"


@dataclass(frozen=True)
class Identified:
    """All slots of all files; `source` is who said what the target's states are, `None` for norms alone."""

    source: str | None
    target: Target | None
    slots: tuple[SlotAnswer, ...]
    problems: tuple[Problem, ...]
    """Of files, and between slots; each slot's own are with it."""

    @property
    def compared(self) -> tuple[int, int]:
        """How many rows of the files were held against states, and how many there are; slots count once."""
        rows: dict[str, tuple[int, int]] = {}
        for slot in self.slots:
            unseen = sum(run.n_rows for run in slot.runs if run.kind == "unseen")
            seen, whole = rows.get(slot.file, (slot.n_rows, 0))
            rows[slot.file] = min(seen, slot.n_rows - unseen), max(whole, slot.n_rows)
        return sum(seen for seen, _ in rows.values()), sum(whole for _, whole in rows.values())

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Everything that matches nothing, is mixed up or cannot be read."""
        whole = [*self.problems, *(problem for slot in self.slots for problem in slot.problems)]
        return tuple(problem for problem in whole if problem.severity == "error")
