"""The plan of a stream: which samples, in which order, in which packs; a pure function of lengths and a seed.

Every rank and every worker has the same plan, so none needs to ask another what it was given.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from schemas.problem import Problem
from service.client.errors import StreamError
from service.client.version import OrderTable
from service.wire.order import epoch_order
from service.wire.packs import pack_starts

TooLong = Literal["refuse", "cut", "drop"]
"""What becomes of a sample over the budget of tokens: an error, its first tokens, or left out."""


@dataclass(frozen=True)
class Budget:
    """How much goes in one pack: at most `tokens`, at most `samples`, or both."""

    tokens: int | None = None
    samples: int | None = None
    too_long: TooLong = "refuse"

    def problems(self) -> list[Problem]:
        """Return what is wrong with the limits."""
        found = []
        limits = {"tokens_per_batch": self.tokens, "samples_per_batch": self.samples}
        if self.tokens is None and self.samples is None:
            message = "expected tokens_per_batch or samples_per_batch, got neither"
            repair = "tokens_per_batch packs samples until that many tokens, as trainers with packing do"
            found.append(Problem(where="tokens_per_batch", kind="missing", message=message, repair=repair))
        for where, limit in limits.items():
            if limit is not None and limit < 1:
                message = f"expected at least 1, got {limit}"
                found.append(Problem(where=where, kind="range", message=message))
        if self.too_long not in get_args(TooLong):
            message = f"expected one of {', '.join(get_args(TooLong))}, got {self.too_long!r}"
            found.append(Problem(where="too_long", kind="choice", message=message))
        return found


class Pack(NamedTuple):
    """The samples of one pack in order: ids in hexadecimal, and how many tokens are taken of each.

    A cut sample fills the budget, so it is alone in its pack.
    """

    sample_ids: list[str]
    lengths: NDArray[np.int64]
    is_cut: bool


class Plan:
    """The packs of every epoch of the samples in a table.

    Raises `StreamError` when no sample is left, and, with `too_long="refuse"`, when one is over the budget.
    """

    def __init__(self, table: OrderTable, seed: int, budget: Budget) -> None:
        self.seed = seed
        self.budget = budget
        lengths = table.n_tokens.astype(np.int64)
        over = lengths > budget.tokens if budget.tokens is not None else np.zeros(len(lengths), bool)
        self.n_over = int(over.sum())
        """Samples over the budget of tokens: cut or left out."""
        if self.n_over and budget.too_long == "refuse":
            raise StreamError("samples are longer than a batch", [_too_long(budget, over, lengths)])
        kept = ~over if budget.too_long == "drop" else np.ones(len(lengths), bool)
        self.sample_ids = np.ascontiguousarray(table.sample_ids[kept])
        self._cut = over[kept]
        self.lengths = np.minimum(lengths[kept], budget.tokens or np.iinfo(np.int64).max)
        if not len(self.lengths):
            raise StreamError("no samples to stream", [_none(len(lengths), self.n_over)])
        self._epochs: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def n_packs(self, epoch: int) -> int:
        """Return how many packs an epoch has: its order decides how samples fall together."""
        return len(self._epoch(epoch)[1]) - 1

    def pack(self, epoch: int, number: int) -> Pack:
        """Return a pack of an epoch."""
        order, starts = self._epoch(epoch)
        rows = order[starts[number] : starts[number + 1]]
        ids = [self.sample_ids[row].tobytes().hex() for row in rows]
        return Pack(ids, self.lengths[rows], bool(self._cut[rows].any()))

    def _epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if epoch not in self._epochs:
            order = epoch_order(self.sample_ids, self.seed, epoch)
            starts = pack_starts(self.lengths[order], self.budget.tokens, self.budget.samples)
            self._epochs = {epoch: (order, starts)}
        return self._epochs[epoch]


def _too_long(budget: Budget, over: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Problem:
    return Problem(
        where="tokens_per_batch",
        kind="too_long",
        message=f"expected samples of at most {budget.tokens} tokens, got {int(over.sum())} longer ones of "
        f"{len(lengths)}, the longest of {int(lengths.max())}",
        repair='say too_long="cut" to train on their first tokens, too_long="drop" to leave them out, '
        "or raise tokens_per_batch",
    )


def _none(n_selected: int, n_over: int) -> Problem:
    message = f"expected at least one sample, got {n_selected} of the selection and {n_over} of them too long"
    repair = "ask for another split, or for fewer tokens at least"
    return Problem(where="samples", kind="empty", message=message, repair=repair)
