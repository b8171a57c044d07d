"""Which split each sample of a version is in: the rule of `schemas.split`, asked once a conversation."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datagen.store.errors import NotFoundError
from datagen.store.index import Index
from datagen.store.index_table import int_values
from schemas.problem import Problem
from schemas.records import SplitRule
from schemas.split import split_ends, split_place

IN_NONE = -1


@dataclass(frozen=True)
class Share:
    """What of a version falls in one split; without a name, what falls in none."""

    split: str | None
    n_samples: int
    n_tokens: int
    n_conversations: int


@dataclass(frozen=True)
class Assignment:
    """A rule over the samples of a version: the number of each one's split, by position.

    `splits` is `[n]`, a number in the rule's fractions or `IN_NONE`; `conversations` has one a conversation.
    """

    rule: SplitRule
    splits: NDArray[np.int16]
    conversations: NDArray[np.int16]

    def positions(self, split: str) -> NDArray[np.int64]:
        """Return the positions of a split's samples, ascending; raises `NotFoundError` that lists splits."""
        names = [name for name, _ in self.rule.fractions]
        if split not in names:
            raise no_split(split, [self.rule])
        return np.flatnonzero(self.splits == names.index(split)).astype(np.int64)

    def shares(self, lengths: NDArray[np.int32]) -> list[Share]:
        """Return what falls in each split and, last, in none; `lengths` are the tokens by position."""
        shares = []
        for number, name in [*enumerate(name for name, _ in self.rule.fractions), (IN_NONE, None)]:
            inside = self.splits == number
            n_tokens = int(lengths[inside].sum(dtype=np.int64))
            n_conversations = int((self.conversations == number).sum())
            shares.append(Share(name, int(inside.sum()), n_tokens, n_conversations))
        return shares


def assign(index: Index, rule: SplitRule) -> Assignment:
    """Return the split of each sample of a version; it costs one hash a conversation."""
    if not len(index):
        return Assignment(rule, np.zeros(0, np.int16), np.zeros(0, np.int16))
    encoded = index.column("conversation_id").dictionary_encode()
    ends = split_ends(rule)
    # By bisect and Python's integers: the last end may be 2**64, which no uint64 is.
    numbers = [bisect_right(ends, split_place(rule, str(text))) for text in encoded.dictionary.to_pylist()]
    found = np.array(numbers, np.int16)
    found[found == len(ends)] = IN_NONE
    return Assignment(rule, found[int_values(pa.chunked_array([encoded.indices]), np.int32)], found)


def rule_of(rules: Sequence[SplitRule], split: str) -> SplitRule:
    """Return the rule that a split is of; raises `NotFoundError` that lists the splits there are."""
    for rule in rules:
        if split in (name for name, _ in rule.fractions):
            return rule
    raise no_split(split, rules)


def no_split(split: str, rules: Sequence[SplitRule]) -> NotFoundError:
    """Return the error of a split that there is none of."""
    names = ", ".join(name for rule in rules for name, _ in rule.fractions) or "none"
    message = f"expected a split of this version, got {split!r}; there are: {names}"
    repair = None if rules else "make them: strata versions split, or POST .../splits"
    problem = Problem(where="split", kind="split", message=message, repair=repair)
    return NotFoundError("no such split", [problem])
