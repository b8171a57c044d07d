"""Which samples of a version are meant: of a split, and long enough; the same for lists, orders and batches.

A version never changes, so what was selected once is kept, by the version's digest.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.records import SplitRule
from schemas.split import split_ends, split_of, split_place
from service.errors import MalformedError
from service.wire.order import epoch_order

V = TypeVar("V")


class Selection(NamedTuple):
    """What was asked for: a split by its name, and minimums of tokens and of tokens with a loss."""

    split: str | None = None
    min_tokens: int = 0
    min_trained: int = 0


class _Kept(Generic[V]):
    """The last values that were worked out, by what they were worked out from; safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[object, ...], V] = OrderedDict()

    def get(self, key: tuple[object, ...], work_out: Callable[[], V]) -> V:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = work_out()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


_POSITIONS: _Kept[NDArray[np.int64]] = _Kept(64)
_SPLITS: _Kept[NDArray[np.int64]] = _Kept(16)
_ORDERS: _Kept[NDArray[np.int64]] = _Kept(8)


def select(
    snapshot: Snapshot, split: str | None = None, min_tokens: int = 0, min_trained: int = 0
) -> NDArray[np.int64]:
    """Return the positions of the selected samples, ascending, `[n]`, read-only.

    A position counts a version's samples in the order of `sample_id`. Raises `MalformedError` that lists the
    splits there are when there is none of that name.
    """
    digest = snapshot.version.digest
    key = (digest, split, min_tokens, min_trained)
    return _POSITIONS.get(key, lambda: _selected(snapshot, split, min_tokens, min_trained))


def in_epoch(snapshot: Snapshot, selection: Selection, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return `[n]`: for each position of an epoch over the selected samples, the sample's position.

    The order is that of `service.wire.order`. Raises `MalformedError` as `select` does.
    """

    def ordered() -> NDArray[np.int64]:
        positions = select(snapshot, *selection)
        ids = snapshot.index.sample_ids.as_bytes()[positions]
        return _frozen(positions[epoch_order(ids, seed, epoch)])

    return _ORDERS.get((snapshot.version.digest, selection, seed, epoch), ordered)


def splits_of(snapshot: Snapshot, conversation_id: str) -> list[str]:
    """Return the splits that a conversation's samples are in, one a rule at most."""
    found = (split_of(rule, conversation_id) for rule in snapshot.version.splits)
    return [name for name in found if name is not None]


def _selected(snapshot: Snapshot, split: str | None, min_tokens: int, min_trained: int) -> NDArray[np.int64]:
    long_enough = snapshot.index.positions(min_tokens=min_tokens, min_trained=min_trained)
    if split is None:
        return _frozen(long_enough)
    rule = _rule(snapshot.version.splits, split)
    inside = _SPLITS.get((snapshot.version.digest, split), lambda: _in_split(snapshot, rule, split))
    return _frozen(np.intersect1d(long_enough, inside, assume_unique=True))


def _rule(rules: tuple[SplitRule, ...], split: str) -> SplitRule:
    for rule in rules:
        if any(name == split for name, _ in rule.fractions):
            return rule
    names = [name for rule in rules for name, _ in rule.fractions]
    there = f"one of {', '.join(names)}" if names else "none: this version has no splits"
    message = f"expected {there}, got {split[:80]!r}"
    problem = Problem(where="query.split", kind="split", message=message)
    raise MalformedError("no such split", [problem])


def _in_split(snapshot: Snapshot, rule: SplitRule, split: str) -> NDArray[np.int64]:
    if not len(snapshot):
        return np.zeros(0, np.int64)
    conversations = cast(list[str], snapshot.index.column("conversation_id").to_pylist())
    names, ends = [name for name, _ in rule.fractions], (0, *split_ends(rule))
    low, high = ends[names.index(split)], ends[names.index(split) + 1]
    known = {each: low <= split_place(rule, each) < high for each in set(conversations)}
    return np.flatnonzero([known[conversation] for conversation in conversations]).astype(np.int64)


def _frozen(values: NDArray[np.int64]) -> NDArray[np.int64]:
    values.flags.writeable = False
    return values
