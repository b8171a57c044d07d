"""NeMo Automodel's own code: which layers its target captures, in which order, and how it shifts a batch."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.oracle.borrow import borrow
from tests.oracle.wheels import source


@dataclass(frozen=True)
class Captured:
    """The `fc` input's boundaries in order, and a batch in which all at position i was the number i."""

    boundaries: list[int]
    ids: list[int]
    mask: list[int]
    logits: list[int]


class _AddsOne(nn.Module):
    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor]:
        return (hidden + 1,)


class _Counting(nn.Module):
    """A decoder whose stream counts its layers, and whose logits are the positions."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_AddsOne() for _ in range(n_layers))
        self.config = SimpleNamespace(num_hidden_layers=n_layers)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        hidden = torch.zeros(*input_ids.shape, 1)
        for layer in self.layers:
            (hidden,) = layer(hidden)
        return SimpleNamespace(logits=input_ids[..., None].float())


def capture(version: str, ids: list[int] | None, n_layers: int, length: int = 6) -> Captured:
    """Run its target wrapper over a counting decoder; ids `None` are its default.

    Raises ValueError where it refuses the ids.
    """
    path = source("automodel", version) / "components" / "speculative" / "eagle" / "target.py"
    given = {"Eagle3TargetBatch": SimpleNamespace}
    target = borrow(path, "HFEagle3TargetModel", given)(_Counting(n_layers), ids)
    at = torch.arange(length)[None]
    batch = target.generate_batch(at, torch.ones_like(at), at)
    return Captured(
        boundaries=[int(value) for value in batch.aux_hidden_states[0, 0]],
        ids=batch.input_ids.flatten().tolist(),
        mask=batch.loss_mask.flatten().tolist(),
        logits=[int(value) for value in batch.logits.flatten()],
    )
