"""What rank 0 hands over through shared memory, over a double of vLLM: all of a batch, or nothing is left."""

import errno
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datagen.engines import shared_rows
from datagen.engines.copying import Outbound
from datagen.engines.owned_names import new_name
from tests.datagen.engines.vllm_double import standing_in

TAGS = ("0", "1", "2", "3")


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Rank 0, with the states of four requests on its tray."""
    with standing_in(monkeypatch):
        reach = import_module("datagen.engines.vllm_reach")
        connector = import_module("datagen.engines.vllm_connector")
        for tag in TAGS:
            states = {"final": torch.full((3, 8), float(tag))}
            connector.TRAY[tag] = connector.Taken(np.arange(3, dtype=np.int32), Outbound(states, []))
        worker = type("Worker", (reach.Reach,), {"rank": 0})()
        worker.tray = connector.TRAY
        yield worker


def left(prefix: str) -> list[Path]:
    return list(shared_rows.SHARED.glob(f"{prefix}*"))


def full_at(third: int, lay_out: Callable[..., Any]) -> Callable[..., Any]:
    laid = []

    def full(*arguments: Any) -> Any:
        laid.append(arguments)
        if len(laid) == third:
            raise OSError(errno.ENOSPC, "No space left on device")
        return lay_out(*arguments)

    return full


def test_where_there_is_no_room_for_all_none_is_left(reach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = new_name()
    monkeypatch.setattr(shared_rows, "lay_out", full_at(3, shared_rows.lay_out))
    with pytest.raises(OSError, match="No space left"):
        reach.strata_hand_over(TAGS, prefix)
    assert left(prefix) == []
    assert reach.tray == {}


@pytest.mark.parametrize("shared", [True, False])
def test_all_are_handed_over_once(reach: Any, shared: bool) -> None:
    prefix = new_name() if shared else None
    handed = reach.strata_hand_over(TAGS, prefix)
    for tag in TAGS:
        arrays = shared_rows.take_up(handed[tag].arrays) if shared else handed[tag].arrays
        assert (arrays["final"] == float(tag)).all()
    assert reach.tray == {}
    assert prefix is None or left(prefix) == []
