"""Arrays through shared memory: whole, on one segment, and gone when nobody holds them."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from datagen.engines.owned_names import new_name
from datagen.engines.shared_rows import drop, lay_out, lay_out_all, sweep, sweep_the_dead, take_up
from tests.datagen.engines.dead_names import name_of_the_dead


def arrays() -> dict[str, np.ndarray]:
    rows = np.arange(30, dtype=np.float32).reshape(5, 6).astype(ml_dtypes.bfloat16)
    return {
        "final": rows.view(np.uint16),
        "norm:final": np.linspace(0, 1, 5, dtype=np.float32),
        "none": np.empty((0, 6), np.uint16),
    }


def test_what_is_laid_out_is_taken_up_and_unlinked(tmp_path: Path) -> None:
    laid = arrays()
    segment = lay_out("strata-a", laid, tmp_path)
    taken = take_up(segment)
    assert list(tmp_path.iterdir()) == []
    assert list(taken) == list(laid)
    for name, array in laid.items():
        assert taken[name].dtype == array.dtype
        assert taken[name].shape == array.shape
        assert taken[name].tobytes() == array.tobytes()
        assert taken[name].flags.c_contiguous


def test_a_segment_is_taken_up_once_and_never_laid_over_another(tmp_path: Path) -> None:
    segment = lay_out("strata-a", arrays(), tmp_path)
    with pytest.raises(FileExistsError):
        lay_out("strata-a", arrays(), tmp_path)
    take_up(segment)
    with pytest.raises(FileNotFoundError):
        take_up(segment)


def test_what_nobody_took_up_is_swept(tmp_path: Path) -> None:
    lay_out("strata-a-1", arrays(), tmp_path)
    lay_out("strata-b-1", arrays(), tmp_path)
    assert sweep("strata-a-", tmp_path) == ["strata-a-1"]
    assert [path.name for path in tmp_path.iterdir()] == ["strata-b-1"]


def test_where_one_does_not_fit_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = os.posix_fallocate
    calls = []

    def full(handle: int, start: int, size: int) -> None:
        calls.append(size)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        room(handle, start, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        lay_out_all("strata-a-", ((str(number), arrays()) for number in range(4)), tmp_path)
    assert list(tmp_path.iterdir()) == []
    laid = lay_out_all("strata-a-", [("0", arrays()), ("1", arrays())], tmp_path)
    take_up(laid["0"])
    drop(laid.values())
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_process_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    left, mine = f"{name_of_the_dead()}3", f"{new_name()}3"
    for name in (left, mine, "strata-somebody-elses-3"):
        lay_out(name, arrays(), tmp_path)
    assert sweep_the_dead(tmp_path) == [left]
    assert {path.name for path in tmp_path.iterdir()} == {mine, "strata-somebody-elses-3"}
