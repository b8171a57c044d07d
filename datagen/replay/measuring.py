"""Candidates on samples: what each scores, conversation by conversation, so that all are compared in pairs.

A sample is read once and every candidate runs on it; a target's lm_head runs once a sample, not once a
candidate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datagen.replay.candidates import TRUE_TARGET, Candidate, Change, Inputs
from datagen.replay.leaning import Spread
from datagen.replay.score import DEFINITIONS, Definition, Flags, Ids, Labels, Tally, chain, hits
from schemas.wiring import TargetRole

Tensors = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Case:
    """One sample to replay; T tokens, H the width.

    `tensors` are `[T, H]` by name, in the dtype that they are stored in; `other` reads those of another
    sample, of its own length.
    """

    sample_id: str
    ids: Ids
    mask: Flags
    tensors: Tensors
    other: Callable[[], Tensors]

    @property
    def pairs(self) -> slice:
        """The pairs that any definition may count, at any step; only those need logits."""
        trained = np.flatnonzero(self.mask)
        return slice(max(0, int(trained[0]) - 1), min(len(self.ids) - 1, int(trained[-1]) + 1))

    @property
    def labelled(self) -> slice:
        """The states that say what is right for those pairs."""
        trained = np.flatnonzero(self.mask)
        return slice(int(trained[0]), min(len(self.ids), int(trained[-1]) + 2))


class Run(NamedTuple):
    """What a draft proposed for a case: target ids `[T-1]` a step, -2 where no logits were asked for."""

    proposed: tuple[Ids, ...]
    loss: tuple[float, int] | None
    """The divergence from a target's distribution at step 1, summed over so many counted pairs."""


class Runner(Protocol):
    """Runs one draft, whatever its inputs, beside its target's lm_head."""

    @property
    def n_slots(self) -> int:
        """Tensors that the draft's `fc` takes."""
        ...

    @property
    def changes(self) -> tuple[Change, ...]:
        """What of its contract can be run otherwise."""
        ...

    def labels(self, case: Case, role: TargetRole) -> Labels:
        """Return what a target says at each state of a case, -1 where it is not asked."""
        ...

    def run(self, case: Case, inputs: Inputs, steps: int, loss_of: TargetRole | None) -> Run:
        """Run the draft on a case, so many teacher-forced steps deep."""
        ...

    def spread(self, case: Case, inputs: Inputs, roles: Sequence[TargetRole]) -> Spread:
        """Return how likely each token is over the counted pairs: to the draft, and to each target."""
        ...


class Watch(Protocol):
    """Is told how far the work is."""

    def stage(self, words: str, total: int) -> None:
        """Begin a stage of so many passes."""
        ...

    def passed(self) -> None:
        """Count one pass."""
        ...


class Cases(Protocol):
    """Samples of different conversations, read as they are asked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that may be chosen as inputs and targets; a case may hold others too."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Case: ...


@dataclass(frozen=True)
class Scores:
    """What one candidate scored."""

    by: Mapping[Definition, Tally]
    chain: tuple[Tally, ...]
    """For k = 1, 2, ...: pairs whose first k tokens are all right."""
    loss: float | None
    """Mean divergence of a counted pair at step 1; shown, and decides nothing."""

    @property
    def learned(self) -> Tally:
        """What candidates are ranked by: agreement with the target on the tokens that the draft knows."""
        return self.by["speculators"]


Measured = dict[Candidate, Scores]


def measure(
    runner: Runner,
    cases: Cases,
    count: int,
    inputs: Sequence[Inputs],
    roles: Sequence[TargetRole],
    watch: Watch,
    steps: int = 1,
    loss_of: TargetRole | None = None,
) -> Measured:
    """Run every one of `inputs` on the first `count` cases, against every one of `roles`."""
    books = {one: _Book(roles, steps, loss_of) for one in inputs}
    for number in range(count):
        case = cases[number]
        labels = {role: runner.labels(case, role) for role in dict.fromkeys([*roles, TRUE_TARGET])}
        for one in inputs:
            books[one].add(case, labels, runner.run(case, one, steps, loss_of))
            watch.passed()
    return {candidate: scores for one, book in books.items() for candidate, scores in book.close(one)}


class _Book:
    """Counts of one of the inputs, a row a conversation."""

    def __init__(self, roles: Sequence[TargetRole], steps: int, loss_of: TargetRole | None) -> None:
        self._loss_of = loss_of
        self._counts: dict[tuple[TargetRole, Definition], list[tuple[int, int]]] = {
            (role, definition): [] for role in roles for definition in DEFINITIONS
        }
        self._chain: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
        self._loss: list[tuple[float, int]] = []

    def add(self, case: Case, labels: Mapping[TargetRole, Labels], run: Run) -> None:
        served = labels[TRUE_TARGET]
        for (role, definition), rows in self._counts.items():
            rows.append(hits(definition, run.proposed[0], 1, labels[role], served, case.mask).sums)
        for rows, count in zip(self._chain, chain(run.proposed, served, case.mask), strict=True):
            rows.append(count)
        if run.loss is not None:
            self._loss.append(run.loss)

    def close(self, inputs: Inputs) -> list[tuple[Candidate, Scores]]:
        steps = tuple(map(_tally, self._chain))
        pairs = sum(count for _, count in self._loss)
        loss = sum(total for total, _ in self._loss) / pairs if pairs else None
        roles = dict.fromkeys(role for role, _ in self._counts)
        return [
            (
                Candidate(inputs, role),
                Scores(
                    {name: _tally(self._counts[role, name]) for name in DEFINITIONS},
                    steps,
                    loss if role == self._loss_of else None,
                ),
            )
            for role in roles
        ]


def _tally(rows: Sequence[tuple[int, int]]) -> Tally:
    right, counted = np.array(rows, np.int64).reshape(-1, 2).T
    return Tally(right, counted)
