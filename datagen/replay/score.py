"""Accuracy has a definition: the same draft scores 0.276 or 0.363 by which tokens and which positions count.

A pair `i` is state i with token i+1; its step `j` predicts token i+1+j, and is right where that is what the
target says at state i+j. Tokens are target ids throughout. Conversations are what is independent of one
another, tokens are not: every interval is drawn over conversations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isinf, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from datagen.replay.student import reach_of

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

Definition = Literal["speculators", "specforge", "server"]
DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
MEANINGS: dict[Definition, str] = {
    "speculators": "as speculators reports: against the best of the tokens that the draft knows; mask[i+1]",
    "specforge": "as SpecForge reports: against the best of all tokens, an unknown one a miss; mask[i]",
    "server": "as a server accepts: against the true target's best of all tokens, unknown a miss; mask[i+1]",
}
RESAMPLES = 2000
LEVEL = 0.99
"""Of every interval: candidates are many, and the best of many is flattered at 95%."""


@dataclass(frozen=True)
class Labels:
    """What a target says at each state of one sample: its best token, of all and of those the draft knows."""

    best: Ids
    """`[T]`, target ids."""
    known: Ids
    """`[T]`, target ids in the draft's vocabulary."""


class Hits(NamedTuple):
    """Which pairs are right, and which count; `[n]` each, `right` only where it counts."""

    right: Flags
    counted: Flags

    @property
    def sums(self) -> tuple[int, int]:
        """Right and counted pairs."""
        return int(self.right.sum()), int(self.counted.sum())


def hits(
    definition: Definition, proposed: Ids, step: int, labels: Labels, served: Labels, mask: Flags
) -> Hits:
    """Score what a draft proposed at one step.

    `proposed` is `[>= T-step]`, the token of each pair; `labels` are of the target that it is thought to be
    trained on, `served` of the target as a server runs it; `mask` is `[T]`. SpecForge itself counts one pair
    more of a sample whose last token is trained: that of the padding behind it, which is left out here.
    """
    n_pairs = max(0, len(mask) - step)
    chosen = proposed[:n_pairs]
    says = {"speculators": labels.known, "specforge": labels.best, "server": served.best}[definition]
    start = step - 1 if definition == "specforge" else step
    counted = mask[start : start + n_pairs].astype(np.bool_)
    return Hits((chosen == says[step:]) & counted, counted)


def chain(proposed: Sequence[Ids], served: Labels, mask: Flags) -> list[tuple[int, int]]:
    """Return, for k = 1, 2, ..., how many pairs have all of their first k tokens right, and how many count.

    Teacher-forced: each step is given the stored token, not the one that the draft proposed, so it is not an
    accept length. `proposed[j-1]` are the tokens of step j. Right is what a server would accept; a pair
    counts for k where the first and the last of its k tokens are trained.
    """
    right = np.ones(len(mask), np.bool_)
    counts = []
    for step, chosen in enumerate(proposed, start=1):
        n_pairs = max(0, len(mask) - step)
        right = right[:n_pairs] & (chosen[:n_pairs] == served.best[step:])
        counted = mask[1 : 1 + n_pairs] & mask[step : step + n_pairs]
        counts.append((int((right & counted).sum()), int(counted.sum())))
    return counts


@dataclass(frozen=True)
class Tally:
    """Right and counted pairs by conversation, `[C]` each, in the order of the conversations."""

    right: Counts
    counted: Counts

    @property
    def pooled(self) -> float:
        """Right pairs of all counted ones; nan where none counts."""
        total = int(self.counted.sum())
        return float(self.right.sum()) / total if total else float("nan")

    @property
    def mean(self) -> float:
        """The mean over conversations of each one's share; those in which nothing counts are left out."""
        some = self.counted > 0
        return float((self.right[some] / self.counted[some]).mean()) if some.any() else float("nan")

    def over(self, conversations: int) -> "Tally":
        """Return the tally of the first so many conversations."""
        return Tally(self.right[:conversations], self.counted[:conversations])


class Interval(NamedTuple):
    """A figure and where it may lie, at `LEVEL`."""

    value: float
    low: float
    high: float

    @property
    def is_above_zero(self) -> bool:
        return self.low > 0


class Bootstrap:
    """Resamples of conversations, the same for every candidate, so that differences are paired.

    Their spread says how far a figure may lie off, by Student's t: percentiles of resamples, and the normal,
    are far too narrow over few conversations. With fewer than two nothing can be said: intervals are then
    infinite.
    """

    def __init__(self, n_conversations: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n_conversations = n_conversations
        # How often each conversation is in each resample, `[resamples, conversations]`.
        self.weights: NDArray[np.float64] = rng.multinomial(
            n_conversations, [1 / n_conversations] * n_conversations, size=RESAMPLES
        ).astype(np.float64)

    def accuracy(self, tally: Tally) -> Interval:
        """Return the pooled accuracy; its interval ends at 0 and 1."""
        value, low, high = self._interval(tally.pooled, tally.right, tally.counted, 1)
        return Interval(value, *(end if isinf(end) else min(max(end, 0.0), 1.0) for end in (low, high)))

    def difference(self, tally: Tally, other: Tally, comparisons: int = 1) -> Interval:
        """Return by how much the pooled accuracy of `tally` is above that of `other`, paired.

        Where the one was the best of many, `comparisons` says of how many: the interval is as wide as it must
        be to hold for all of them at `LEVEL` (Bonferroni).
        """
        value = tally.pooled - other.pooled
        if not np.array_equal(tally.counted, other.counted):
            raise ValueError("expected two tallies of the same pairs, got other counts")
        return self._interval(value, tally.right - other.right, tally.counted, comparisons)

    def _interval(self, value: float, right: Counts, counted: Counts, comparisons: int) -> Interval:
        totals = self.weights @ counted
        some = totals > 0
        if not some.any():
            return Interval(value, float("-inf"), float("inf"))
        reach = reach_over((self.weights @ right)[some] / totals[some], counted, comparisons)
        return Interval(value, value - reach, value + reach)


@cache
def bootstrap_over(n_conversations: int) -> Bootstrap:
    """Return the resamples of so many conversations, drawn once."""
    return Bootstrap(n_conversations)


def reach_over(drawn: NDArray[np.float64], counted: NDArray[np.number], comparisons: int) -> float:
    """Return how far from the truth a figure may lie at `LEVEL`, by its resamples.

    `counted` is the weight of each conversation, `[C]`. The spread of resamples is too small by
    `sqrt((C-1)/C)`; of conversations that weigh unequally as many count as would of equal ones (Kish).
    """
    n_conversations = len(counted)
    weights = np.asarray(counted, np.float64)
    if n_conversations < 2 or not weights.any():
        return float("inf")
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    spread = float(drawn.std()) * sqrt(n_conversations / (n_conversations - 1))
    return reach_of(1 - (1 - LEVEL) / comparisons, max(1, round(effective) - 1)) * spread
