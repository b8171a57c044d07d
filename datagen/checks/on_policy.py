"""What the target itself would have said, on rows of a part's trained tokens: of its own answers, all of it.

At temperature 0 an answer is the likeliest token each time, so the head on the stored `final` chooses it
again, but where two are as likely or a cache rounds otherwise (0.6% of SmolLM2's in bfloat16).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Capture, Engine, TieTelling
from datagen.prompts.prompt import Prompt
from schemas.boundary import FINAL
from schemas.problem import Problem

MOST_ROWS = 256
"""Rows of a part that the head is run on: a product over the vocabulary for each."""
LEAST_RATE = 0.98
CHANCE = 4.0
"""Standard deviations by which a few rows may miss the rate."""


@dataclass(frozen=True)
class OnPolicyCounts:
    """Of `positions` looked at, on `tied` two tokens are as likely; of the others, on `agreeing` the
    stored token is the one that the target would have chosen."""

    positions: int = 0
    tied: int = 0
    agreeing: int = 0

    def __add__(self, other: "OnPolicyCounts") -> "OnPolicyCounts":
        return OnPolicyCounts(
            self.positions + other.positions, self.tied + other.tied, self.agreeing + other.agreeing
        )

    @property
    def rate(self) -> float | None:
        """The share of agreeing positions, ties left out; `None` where there are none."""
        untied = self.positions - self.tied
        return self.agreeing / untied if untied else None


class OnPolicy:
    """Gathers rows of a part's samples, spread over them, with the token that follows each."""

    def __init__(self, n_samples: int) -> None:
        """Take rows of a part of so many samples."""
        self._each = max(1, MOST_ROWS // max(1, n_samples))
        self._every = max(1, -(-n_samples // MOST_ROWS))
        self._seen = 0
        self._rows: list[NDArray[np.generic]] = []
        self._next: list[NDArray[np.int32]] = []

    def add(self, prompt: Prompt, capture: Capture) -> None:
        """Keep rows of a sample in front of trained tokens."""
        self._seen += 1
        at = np.flatnonzero(prompt.loss_mask[1:] == 1)
        if (self._seen - 1) % self._every or not at.size or FINAL not in capture.tensors:
            return
        at = np.unique(at[np.linspace(0, at.size - 1, min(self._each, at.size)).astype(int)])
        self._rows.append(capture.tensors[FINAL][at])
        self._next.append(prompt.input_ids[at + 1])

    def counts(self, engine: Engine) -> OnPolicyCounts:
        """Run the head on what was kept; raises `EngineError`."""
        if not self._rows:
            return OnPolicyCounts()
        rows, following = np.concatenate(self._rows), np.concatenate(self._next)
        tied = engine.head_ties(rows) if isinstance(engine, TieTelling) else np.zeros(len(rows), bool)
        agreeing = (engine.head_argmax(rows) == following) & ~tied
        return OnPolicyCounts(len(rows), int(tied.sum()), int(agreeing.sum()))


def greedy_problem(found: OnPolicyCounts) -> Problem | None:
    """Return why `final` cannot be of answers at temperature 0: more is missed than chance has it."""
    untied = found.positions - found.tied
    missed, allowed = untied - found.agreeing, (1 - LEAST_RATE) * untied
    if missed <= allowed + CHANCE * allowed**0.5:
        return None
    message = (
        f"expected its argmax to be what the target answered at temperature 0 on at least {LEAST_RATE:.0%} "
        f"of the positions without a tie, got {found.agreeing} of {untied} ({found.agreeing / untied:.1%})"
    )
    return Problem(where=FINAL, kind="on_policy", message=message)
