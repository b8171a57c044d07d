"""The draft's vocabulary: which of the target's tokens a draft that knows only so many can say.

The rule is speculators': those that are trained on most often, of equally frequent ones the lower id; the
chosen ids ascend, and where too few are trained on, the lowest ids that are not among them fill up. Source:
`train/vocab_mapping.py` of release 0.9.0. SpecForge's rule (`data/preprocessing.py` of 0.2.0) is the same but
for ties, which it takes in the order in which it met them, and for what fills up, which it takes from a set.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datagen.errors import ConfigError
from schemas.problem import Problem


@dataclass(frozen=True)
class DraftVocabulary:
    """The tokens of a draft: `tokens` their ids in the target, ascending, `[D]` int64; `target_size` is V."""

    tokens: NDArray[np.int64]
    target_size: int

    @property
    def d2t(self) -> NDArray[np.int64]:
        """What to add to a draft's token id to have the target's, `[D]` int64."""
        return self.tokens - np.arange(len(self.tokens), dtype=np.int64)

    @property
    def t2d(self) -> NDArray[np.bool_]:
        """Whether the draft has each of the target's tokens, `[V]` bool."""
        known = np.zeros(self.target_size, np.bool_)
        known[self.tokens] = True
        return known


def count_trained(
    samples: Iterable[tuple[NDArray[np.generic], NDArray[np.generic]]], target_size: int
) -> NDArray[np.int64]:
    """Return how often each token is trained on, `[V]` int64, from each sample's ids and loss mask, `[T]`.

    Raises `ValueError` where an id lies outside the target's vocabulary.
    """
    counts = np.zeros(target_size, np.int64)
    for ids, mask in samples:
        trained = ids[mask != 0].astype(np.int64)
        if len(trained) and not 0 <= int(trained.min()) <= int(trained.max()) < target_size:
            raise ValueError(f"expected token ids below {target_size}, got up to {int(trained.max())}")
        counts += np.bincount(trained, minlength=target_size)
    return counts


def choose_tokens(counts: NDArray[np.int64], size: int) -> DraftVocabulary:
    """Return the `size` tokens of the draft, from how often each of the target's is trained on, `[V]`.

    Raises `ConfigError` where the target has fewer tokens than that.

    >>> choose_tokens(np.array([0, 5, 0, 2, 2]), 3).tokens.tolist()
    [1, 3, 4]
    >>> choose_tokens(np.array([0, 0, 0, 2, 0]), 3).tokens.tolist()
    [0, 1, 3]
    """
    if not 1 <= size <= len(counts):
        message = f"expected between 1 and {len(counts)}, which the target has, got {size}"
        raise ConfigError(
            "no such draft", [Problem(where="--draft-vocab-size", kind="size", message=message)]
        )
    # Stable, so of equal counts the lower id comes first; what is never trained on fills up from below.
    chosen = np.argsort(-counts, kind="stable")[:size]
    return DraftVocabulary(np.sort(chosen).astype(np.int64), len(counts))
