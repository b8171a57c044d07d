"""A version in a root, a folder's or a bucket's, read by the store itself: no service is asked."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Self

import numpy as np

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.snapshot import Snapshot
from datagen.store.splits import assign, rule_of
from datagen.store.trainer_rows import Listed
from schemas.boundary import FINAL_NORMED
from schemas.dataset_facts import DatasetFacts
from schemas.final_norm import FinalNorm
from schemas.reference import DatasetReference
from service.client.stack import MakeStates, Stack, Stackings, new_states
from service.trainers.held import TokenRows


class StoredVersion:
    """A `Held` in a root; it is opened when it is first used, in each process anew."""

    def __init__(self, reference: DatasetReference) -> None:
        self.reference = reference

    def __reduce__(self) -> tuple[type[Self], tuple[DatasetReference]]:
        return type(self), (self.reference,)

    @property
    def source(self) -> str:
        return str(self.reference)

    @property
    def facts(self) -> DatasetFacts:
        snapshot = self._snapshot
        return DatasetFacts(self.source, snapshot.schema, snapshot.version, snapshot.final_norm())

    def groups(self, splits: Sequence[str]) -> list[list[Listed]]:
        index = self._snapshot.index
        if not splits:
            return [list(index)]
        chosen = (assign(index, rule_of(self._snapshot.version.splits, split)) for split in splits)
        return [
            [index.at(int(position)) for position in assigned.positions(split)]
            for split, assigned in zip(splits, chosen, strict=True)
        ]

    def tokens(self, sample_ids: Sequence[str]) -> Iterator[TokenRows]:
        for sample_id in sample_ids:
            at = self._snapshot.place(sample_id)
            part, place = self._snapshot.part(at), (at.row_start, at.n_tokens)
            yield TokenRows(part.read_tokens(*place, "input_ids"), part.read_tokens(*place, "loss_mask"))

    def stack(
        self,
        sample_id: str,
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> Stack:
        snapshot = self._snapshot
        at = snapshot.place(sample_id)
        part = snapshot.part(at)
        stack = self._stackings.of(names, columns, partial(self._norm_for, names)).one(out)
        planes = stack.planes(at.n_tokens)
        for name in columns:
            values = part.read_tokens(at.row_start, at.n_tokens, name)
            planes.pop(name)[:] = values.view(np.uint8).reshape(at.n_tokens, -1)
        part.read_planes(at.row_start, at.n_tokens, planes)
        return stack.done()

    @property
    def asks(self) -> bool:
        return False

    def stacks(
        self,
        sample_ids: Sequence[str],
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> list[Stack]:
        return [self.stack(sample_id, names, columns, out=out) for sample_id in sample_ids]

    def _norm_for(self, names: Sequence[str]) -> FinalNorm | None:
        return self._snapshot.final_norm() if FINAL_NORMED in names else None

    @cached_property
    def _stackings(self) -> Stackings:
        return Stackings(self._snapshot.schema)

    @cached_property
    def _snapshot(self) -> Snapshot:
        root, dataset, version = self.reference
        return Dataset.open(open_door(root), dataset).snapshot(version)


def open_stored(reference: DatasetReference) -> StoredVersion:
    """Open a version of a root; raises what the store raises where there is none."""
    root, dataset, version = reference
    number = Dataset.open(open_door(root), dataset).snapshot(version).version.number
    return StoredVersion(reference._replace(version=number))
