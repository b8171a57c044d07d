"""What the target would have said, on rows of a part: gathered, counted, refused where it is too little."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.checks import OnPolicy, OnPolicyCounts
from datagen.checks.on_policy import MOST_ROWS, greedy_problem
from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from tests.datagen.prompt_builders import random_prompts


def capture_of(prompt: Prompt) -> Capture:
    """Return states whose first value is the token that follows."""
    following = np.roll(prompt.input_ids, -1)
    return Capture(prompt.input_ids, {"final": np.stack([following, following], 1).astype(np.float32)}, {})


@dataclass
class Heads:
    """An engine's head alone: it reads the token out of the row, and ties where that is below `ties`."""

    off: int = 0
    ties: int = 0

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        return np.asarray(final[:, 0], np.int32) + self.off

    def head_ties(self, final: NDArray[np.generic]) -> NDArray[np.bool_]:
        return np.asarray(final[:, 0].astype(np.int32) < self.ties)


@pytest.mark.parametrize("n_samples", [1, 3, 200, 900])
def test_rows_are_few_and_of_trained_tokens_of_many_samples(n_samples: int) -> None:
    gathered = OnPolicy(n_samples)
    for prompt in random_prompts([20] * n_samples):
        gathered.add(prompt, capture_of(prompt))
    found = gathered.counts(Heads())  # type: ignore[arg-type]
    assert 0 < found.positions <= MOST_ROWS
    assert (found.tied, found.agreeing, found.rate) == (0, found.positions, 1.0)
    wrong = gathered.counts(Heads(off=1))  # type: ignore[arg-type]
    assert (wrong.agreeing, wrong.rate) == (0, 0.0)
    tied = gathered.counts(Heads(ties=500))  # type: ignore[arg-type]
    assert 0 < tied.tied < tied.positions or n_samples == 1
    assert tied.agreeing == tied.positions - tied.tied


def test_without_final_or_trained_tokens_nothing_is_known() -> None:
    (prompt,) = random_prompts([20])
    gathered = OnPolicy(1)
    gathered.add(prompt, Capture(prompt.input_ids, {}, {}))
    assert gathered.counts(Heads()).rate is None  # type: ignore[arg-type]


def test_a_rate_below_the_least_is_refused_by_finals_name_unless_it_is_chance() -> None:
    assert greedy_problem(OnPolicyCounts(256, 6, 250)) is None
    assert greedy_problem(OnPolicyCounts(250, 0, 243)) is None  # 97.2%, two misses more than 98% has
    assert greedy_problem(OnPolicyCounts(5, 0, 4)) is None
    problem = greedy_problem(OnPolicyCounts(256, 6, 230))
    assert str(problem) == (
        "final: expected its argmax to be what the target answered at temperature 0 on at least 98% of the "
        "positions without a tie, got 230 of 250 (92.0%)"
    )
