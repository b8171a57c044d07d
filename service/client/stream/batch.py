"""Batches: named tensors of one pack, or what a consumer's own code takes, each with where it stands."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Self, TypedDict

import torch

from schemas.wiring import Wiring
from service.client.options import Layout
from service.client.stream.fetched import Fetched
from service.client.stream.memory import Memory
from service.client.stream.moves import moved

PADDING = -1
"""The document id where there is no sample."""


class Place(TypedDict):
    """Where a batch stands, as the fields that every batch has."""

    epoch: int
    position: int
    is_padding: bool
    state: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a batch stands: pack `position` of `epoch`; `state` is the stream's when this batch was taken.

    `is_padding` says that this epoch gave the same pack before: leave its loss out, or accept it twice.
    """

    epoch: int
    position: int
    is_padding: bool
    state: dict[str, Any]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Return the batch with its tensors on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the batch in pinned memory: what a DataLoader asks for with `pin_memory=True`."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        return replace(
            self, **{each.name: _mapped(getattr(self, each.name), change) for each in fields(self)}
        )


@dataclass(frozen=True, eq=False)
class Batch(Placed):
    """Named tensors of the samples of one pack.

    Packed, samples lie end to end: `tensors` are `[sum t, H]`, `input_ids` (int64), `loss_mask` (bool),
    `position_ids` and `document_ids` (int64) `[sum t]`. Padded, they have a row each, filled up with zeros
    to the longest: `[B, T, H]` and `[B, T]`. `document_ids` are the sample's number in the batch, -1 where
    padded; `lengths` `[B]` and `offsets` `[B + 1]` are tokens of each sample, and their running sum.
    `tensors` stand in the wiring's order, `fc` first. Row i holds state i and token i, unless the wiring
    leaves the shift to who hands over samples (`token_shift="producer"`): then token i+1. `position_ids`
    go with the states, from the wiring's `position_start` on: that of row i is the position of pair i.
    """

    layout: Layout
    tensors: dict[str, torch.Tensor]
    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    position_ids: torch.Tensor
    document_ids: torch.Tensor
    lengths: torch.Tensor
    offsets: torch.Tensor
    sample_ids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ConsumerBatch(Placed):
    """What a consumer's own code takes: the arguments of its model, or the samples for its own collate."""

    inputs: Any
    sample_ids: tuple[str, ...]


def named(fetched: Fetched, wiring: Wiring, layout: Layout, memory: Memory, place: Place) -> Batch:
    """Return what was fetched as named tensors."""
    fetched = moved(fetched, wiring)
    lengths = fetched.lengths
    start = wiring.position_start or 0
    columns = {
        "input_ids": fetched.input_ids,
        "loss_mask": fetched.loss_mask,
        "position_ids": torch.cat([torch.arange(start, start + n) for n in lengths]),
        "document_ids": torch.repeat_interleave(torch.tensor(lengths)),
    }
    tensors = fetched.tensors
    if layout == "padded":
        columns = {
            name: padded(values, fetched.offsets, memory, PADDING if name == "document_ids" else 0)
            for name, values in columns.items()
        }
        tensors = {name: padded(rows, fetched.offsets, memory) for name, rows in tensors.items()}
    return Batch(
        **place,
        layout=layout,
        tensors=tensors,
        input_ids=columns["input_ids"],
        loss_mask=columns["loss_mask"],
        position_ids=columns["position_ids"],
        document_ids=columns["document_ids"],
        lengths=torch.tensor(lengths),
        offsets=torch.tensor(fetched.offsets),
        sample_ids=fetched.sample_ids,
    )


def padded(rows: torch.Tensor, offsets: tuple[int, ...], memory: Memory, filling: int = 0) -> torch.Tensor:
    """Return `[sum t, ...]` as `[B, T, ...]`: a row a sample, filled up to the longest."""
    lengths = [end - first for first, end in pairwise(offsets)]
    out = memory.empty((len(lengths), max(lengths), *rows.shape[1:]), rows.dtype)
    for at, (first, length) in enumerate(zip(offsets, lengths, strict=False)):
        out[at, :length] = rows[first : first + length]
        out[at, length:] = filling
    return out


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    return value
