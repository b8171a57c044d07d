"""The definitions of accuracy that replay names after trainers, against those trainers' own metrics code."""

import numpy as np
import pytest
import torch

from datagen.replay.score import Definition, Labels, hits
from tests.oracle.accuracy_code import by_specforge, by_speculators

VOCABULARY, STEPS = 11, 3
KNOWN = torch.tensor([0, 1, 4, 7, 9])


class Drawn:
    """A sample of random logits: what a draft says at each step, and what its target says."""

    def __init__(self, seed: int, *, ends_trained: bool) -> None:
        random = torch.Generator().manual_seed(seed)
        n_tokens = 6 + seed % 30
        self.logits = [torch.randn(n_tokens - 1, len(KNOWN), generator=random) for _ in range(STEPS)]
        self.target = torch.randn(n_tokens, VOCABULARY, generator=random)
        self.mask = (torch.rand(n_tokens, generator=random) < 0.6).int()
        self.mask[-1] = int(ends_trained)

    def ours(self, definition: Definition) -> list[tuple[int, int]]:
        best = self.target.argmax(-1).numpy()
        known = KNOWN[self.target[:, KNOWN].argmax(-1)].numpy()
        labels = Labels(best, known)
        other = Labels(np.full_like(best, -1), np.full_like(best, -1))
        found = []
        for step, logits in enumerate(self.logits, start=1):
            proposed = KNOWN[logits.argmax(-1)].numpy()
            # What a server would say is nothing to a trainer.
            found.append(hits(definition, proposed, step, labels, other, self.mask.numpy() == 1).sums)
        return found


@pytest.mark.parametrize("ends_trained", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_as_speculators_counts(seed: int, ends_trained: bool) -> None:
    drawn = Drawn(seed, ends_trained=ends_trained)
    theirs = by_speculators("0.9.0", drawn.logits, drawn.target, KNOWN, drawn.mask)
    assert drawn.ours("speculators") == theirs
    assert any(right for right, _ in theirs) or seed < 3


@pytest.mark.parametrize("seed", range(12))
def test_as_specforge_counts(seed: int) -> None:
    drawn = Drawn(seed, ends_trained=False)
    theirs = by_specforge("0.2.0", drawn.logits, drawn.target, KNOWN, drawn.mask)
    assert drawn.ours("specforge") == theirs


@pytest.mark.parametrize("seed", range(12))
def test_specforge_counts_a_trained_last_token_with_nothing_after_it(seed: int) -> None:
    """A pair more in a sample that ends trained, of the padding's token: left out here."""
    drawn = Drawn(seed, ends_trained=True)
    theirs = by_specforge("0.2.0", drawn.logits, drawn.target, KNOWN, drawn.mask)
    ours = drawn.ours("specforge")
    assert [whole - counted for (_, whole), (_, counted) in zip(theirs, ours, strict=True)] == [1] * STEPS


def test_the_two_differ_on_the_same_sample() -> None:
    drawn = Drawn(5, ends_trained=False)
    assert drawn.ours("speculators") != drawn.ours("specforge")
