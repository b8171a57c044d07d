"""Tokens are moved by the wiring, once, sample by sample, and never otherwise."""

from typing import Any

import pytest
import torch

from schemas.wiring import Wiring
from service.client.stream.fetched import Fetched
from service.client.stream.moves import moved


def fetched() -> Fetched:
    return Fetched(
        sample_ids=("a", "b", "c"),
        offsets=(0, 3, 4, 6),
        tensors={"layer1": torch.arange(6.0)[:, None]},
        input_ids=torch.tensor([10, 11, 12, 20, 30, 31]),
        loss_mask=torch.tensor([0, 1, 1, 1, 1, 1]).bool(),
    )


def wiring(**given: Any) -> Wiring:
    return Wiring(consumer="mine", kind="trainer", n_layers=4, fc=("layer1",), **given)


@pytest.mark.parametrize("shift", ["consumer", None])
def test_what_a_consumer_shifts_is_not_moved(shift: str | None) -> None:
    stored = fetched()
    assert moved(stored, wiring(token_shift=shift, mask_alignment="next")) is stored


@pytest.mark.parametrize(
    ("alignment", "mask"),
    [("next", [1, 1, 0, 0, 1, 0]), ("same", [0, 1, 0, 0, 1, 0]), (None, [0, 1, 0, 0, 1, 0])],
)
def test_what_a_producer_shifts_is_moved_once_within_each_sample(
    alignment: str | None, mask: list[int]
) -> None:
    stored = fetched()
    result = moved(stored, wiring(token_shift="producer", mask_alignment=alignment))
    assert result.input_ids.tolist() == [11, 12, 0, 0, 31, 0]
    assert result.loss_mask.int().tolist() == mask
    assert torch.equal(result.tensors["layer1"], stored.tensors["layer1"])
    assert stored.input_ids.tolist() == [10, 11, 12, 20, 30, 31]
    assert stored.loss_mask.int().tolist() == [0, 1, 1, 1, 1, 1]
