"""Which samples are replayed: one of each conversation, since pieces of one are not independent."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from datagen.replay.errors import ReplayError
from datagen.replay.measuring import Case, Tensors
from datagen.store.snapshot import Snapshot
from datagen.store.splits import assign, rule_of
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.problem import Problem

MAX_TOKENS = 1024
"""Samples are read so far: what identifies a draft is there, and attention costs the square."""
_KEPT = 2


class StoredCases:
    """Samples of a version, those with the lowest ids: hashes, so they are a fair draw.

    `names` are the tensors to choose from, all that are stored by default; `final_normed` is one of them
    wherever `final` is, since the norm is the target's own. With `split` only samples of that split are
    drawn; raises `NotFoundError` where the version has no such split.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        wanted: int,
        names: Sequence[str] | None = None,
        split: str | None = None,
    ) -> None:
        stored = snapshot.schema.names
        if not {FINAL, FINAL_NORMED} & set(stored):
            raise ReplayError("there is nothing to compare with", [_no_truth(stored)])
        chosen = stored if names is None else tuple(name for name in stored if name in names)
        derived = FINAL in chosen and FINAL_NORMED not in chosen
        self.names = (*chosen, FINAL_NORMED) if derived else chosen
        self._snapshot = snapshot
        truth = FINAL if FINAL in stored else FINAL_NORMED
        self._read = tuple(name for name in stored if name in {*chosen, truth})
        self._ids = _drawn(snapshot, wanted, _ids(snapshot, split))
        self._kept: OrderedDict[int, Case] = OrderedDict()
        if not self._ids:
            raise ReplayError("there is nothing to replay", [_nothing(len(snapshot), split)])

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def n_cut(self) -> int:
        """How many samples are longer than what is read of them."""
        return sum(self._snapshot.location(one).n_tokens > MAX_TOKENS for one in self._ids)

    def __getitem__(self, number: int) -> Case:
        """Read a case; raises what `Snapshot.read` raises."""
        case = self._kept.pop(number, None) or self._case(number)
        self._kept[number] = case
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return case

    def _case(self, number: int) -> Case:
        sample_id = self._ids[number]
        n_tokens = min(MAX_TOKENS, self._snapshot.location(sample_id).n_tokens)
        sample = self._snapshot.read(sample_id, self._read, slice(0, n_tokens))

        def other() -> Tensors:
            return self[(number + 1) % len(self)].tensors

        return Case(
            sample_id=sample_id,
            ids=sample.tokens["input_ids"].astype(np.int64),
            mask=sample.tokens["loss_mask"] == 1,
            tensors=sample.tensors,
            other=other,
        )


def _ids(snapshot: Snapshot, split: str | None) -> Iterable[str]:
    """Return the sample ids to draw from, in order."""
    if split is None:
        return snapshot.sample_ids
    index = snapshot.index
    chosen = assign(index, rule_of(snapshot.version.splits, split)).positions(split)
    return (index.at(int(position)).sample_id for position in chosen)


def _drawn(snapshot: Snapshot, wanted: int, ids: Iterable[str]) -> list[str]:
    """Return the lowest sample of each conversation, as far as it has a trained pair in what is read."""
    drawn: list[str] = []
    conversations: set[str] = set()
    for sample_id in ids:
        if len(drawn) == wanted:
            break
        location = snapshot.location(sample_id)
        if location.conversation_id in conversations or location.n_tokens < 3:
            continue
        window = slice(0, min(MAX_TOKENS, location.n_tokens))
        mask = snapshot.read(sample_id, names=(), tokens=window).tokens["loss_mask"]
        if mask[1:-1].any():
            drawn.append(sample_id)
            conversations.add(location.conversation_id)
    return drawn


def _no_truth(stored: Sequence[str]) -> Problem:
    return Problem(
        where="dataset",
        kind="target",
        message="expected final or final_normed, without which nothing says what is right, got "
        + ", ".join(stored),
        repair="capture `final` too, or keep the dataset's audit set beside it, which has every boundary",
    )


def _nothing(n_samples: int, split: str | None) -> Problem:
    among = f"{n_samples}" if split is None else f"those of {split}"
    return Problem(
        where="dataset",
        kind="empty",
        message=f"expected a sample of three tokens or more with a trained one, got none among {among}",
        repair="give a dataset with answers in its loss_mask",
    )
