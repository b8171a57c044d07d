"""A version in a root, a folder's or a bucket's, read by the store itself: no service is asked."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from datagen.store.dataset import Dataset
from datagen.store.index import Location
from datagen.store.opening import open_door
from datagen.store.part_reader import PartReader
from datagen.store.snapshot import Snapshot
from datagen.store.splits import assign, rule_of
from datagen.store.trainer_rows import Listed
from schemas.boundary import FINAL_NORMED
from schemas.dataset_facts import DatasetFacts
from schemas.records import BLOCK_ROWS
from schemas.reference import DatasetReference
from service.client.stack import MakeStates, Stack, Stacking, new_states
from service.trainers.held import TokenRows

PIECE_BYTES = 2**19


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
            at = self._snapshot.location(sample_id)
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
        norm = snapshot.final_norm() if FINAL_NORMED in names else None
        stacking = Stacking(snapshot.schema, names, columns, out, norm)
        at = snapshot.location(sample_id)
        part = snapshot.part(at)
        for name, plane in stacking.planes(at.n_tokens).items():
            if name in columns:
                plane[:] = (
                    part.read_tokens(at.row_start, at.n_tokens, name).view(np.uint8).reshape(plane.shape)
                )
            else:
                _fill(part, at, name, plane, self._piece_bytes)
        return stacking.done()

    @cached_property
    def _snapshot(self) -> Snapshot:
        root, dataset, version = self.reference
        return Dataset.open(open_door(root), dataset).snapshot(version)

    @cached_property
    def _piece_bytes(self) -> int:
        """Bytes that are read at once: what stays in the cache; from a bucket all, in one request."""
        root, dataset, _ = self.reference
        return PIECE_BYTES if open_door(root).local_path(dataset) else 2**40


def _fill(part: PartReader, at: Location, name: str, plane: NDArray[np.uint8], piece_bytes: int) -> None:
    """Fill a plane with a tensor's rows, some whole blocks at a time."""
    n_tokens, row_bytes = plane.shape
    step = min(max(1, piece_bytes // (BLOCK_ROWS * row_bytes)) * BLOCK_ROWS, n_tokens)
    scratch = np.empty(step * row_bytes, np.uint8)
    for first in range(0, n_tokens, step):
        rows = min(step, n_tokens - first)
        piece = scratch[: rows * row_bytes]
        part.read_bytes(at.row_start, n_tokens, name, first * row_bytes, piece)
        plane[first : first + rows] = piece.reshape(rows, row_bytes)


def open_stored(reference: DatasetReference) -> StoredVersion:
    """Open a version of a root; raises what the store raises where there is none."""
    root, dataset, version = reference
    number = Dataset.open(open_door(root), dataset).snapshot(version).version.number
    return StoredVersion(reference._replace(version=number))
