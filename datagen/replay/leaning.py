"""Which target was a draft trained on? The one whose tokens it proposes as often as that target says them.

Accuracies against two targets are of two sets of tokens, and a middle layer's may be the easier ones: they do
not compare. How likely each token is over all pairs does: a draft learns it first, and of its own target.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.replay.candidates import Inputs
from datagen.replay.score import Bootstrap, Interval, reach_over
from schemas.wiring import TargetRole

Likely = NDArray[np.float32]
MUCH_BETTER = 2.0
"""Times the accuracy on another target from which on easier tokens do not explain it. Drafts of SmolLM2 that
were trained on the true target guessed a middle layer's tokens 1.2 to 1.4 times as often."""
RESAMPLES = 300
_COLUMNS = 8192
"""Tokens whose resamples are in memory at once."""


class Spread(NamedTuple):
    """Probabilities of one conversation, summed over its counted pairs; `[D]`, the tokens a draft knows."""

    proposed: Likely
    expected: Mapping[TargetRole, Likely]
    right: Mapping[TargetRole, int]
    """Of the pairs, those of which both have the same best token."""


@dataclass(frozen=True)
class Leaning:
    """How alike a draft's proposals and each target's tokens are, over all pairs: 1 is the same."""

    inputs: Inputs
    """What the draft was fed."""
    alike: Mapping[TargetRole, Interval]
    behind: Mapping[tuple[TargetRole, TargetRole], Interval]
    """By how much the second of two is less alike; an interval that allows for all that were tried."""
    right: Mapping[TargetRole, int]
    """Pairs that the draft guesses."""

    @property
    def nearest(self) -> TargetRole:
        """The target that is the most alike."""
        return max(self.alike, key=lambda role: self.alike[role].value)

    def decide(self, expected: TargetRole) -> TargetRole:
        """Return what is expected, unless another target is beyond doubt nearer, or guessed much better."""
        nearest = self.nearest
        if expected not in self.alike or self.is_nearer(nearest, expected):
            return nearest
        easiest = max(self.right, key=lambda role: self.right[role])
        if self._is_much_better(easiest, expected) and not self.is_nearer(expected, easiest):
            return easiest
        return expected

    def is_nearer(self, one: TargetRole, other: TargetRole) -> bool:
        """Say whether `one` is more alike than `other` beyond doubt."""
        return one != other and self.behind[one, other].is_above_zero

    def _is_much_better(self, one: TargetRole, other: TargetRole) -> bool:
        return self.right[one] > MUCH_BETTER * self.right[other]

    def rivals(self, role: TargetRole) -> tuple[TargetRole, ...]:
        """Return the targets that cannot be told from `role`, the nearest first."""
        if role not in self.alike:
            return ()
        near = [
            one
            for one in self.alike
            if one != role and not self.is_nearer(role, one) and not self._is_much_better(role, one)
        ]
        return tuple(sorted(near, key=lambda one: -self.alike[one].value))


def leaning(inputs: Inputs, spreads: Sequence[Spread]) -> Leaning:
    """Compare a draft's proposals with every target of `spreads`, one a conversation."""
    roles = tuple(spreads[0].expected)
    weights = Bootstrap(len(spreads)).weights[:RESAMPLES].astype(np.float32)
    every = np.ones((1, len(spreads)), np.float32)
    proposed = np.stack([spread.proposed for spread in spreads])
    values, drawn = {}, {}
    for role in roles:
        expected = np.stack([spread.expected[role] for spread in spreads])
        values[role] = float(_alike(every, proposed, expected)[0])
        drawn[role] = _alike(weights, proposed, expected)
    pairs = proposed.sum(axis=1)
    comparisons = max(1, len(roles) - 1)
    return Leaning(
        inputs,
        {role: _interval(values[role], drawn[role], pairs, 1) for role in roles},
        {
            (one, other): _interval(
                values[one] - values[other], drawn[one] - drawn[other], pairs, comparisons
            )
            for one in roles
            for other in roles
            if one != other
        },
        {role: sum(spread.right[role] for spread in spreads) for role in roles},
    )


def _alike(weights: Likely, proposed: Likely, expected: Likely) -> NDArray[np.float64]:
    """Return what two distributions have in common, a figure a resample `[R]`, of sums `[C, D]`."""
    total = np.zeros(len(weights))
    pairs = (weights @ proposed.sum(axis=1)).clip(min=1e-9)[:, None]
    for start in range(0, proposed.shape[1], _COLUMNS):
        some = slice(start, start + _COLUMNS)
        both = np.minimum(weights @ proposed[:, some], weights @ expected[:, some])
        total += (both / pairs).sum(axis=1)
    return total


def _interval(value: float, drawn: NDArray[np.float64], pairs: Likely, comparisons: int) -> Interval:
    """Return an interval about the value itself: resamples of a share in common lie lower, all alike."""
    reach = reach_over(drawn, pairs, comparisons)
    return Interval(value, value - reach, value + reach)
