"""What cannot be written ends with the system's own reason, whoever makes the bytes."""

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from datagen.adapters.exports.whole_files import save_array, save_torch
from tests.full_disk import no_file_larger_than

NUMBERS = np.arange(1000)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_torch({"d2t": torch.from_numpy(NUMBERS)}, tmp_path / "maps.pt")
    save_array(NUMBERS, tmp_path / "d2t.npy")
    assert torch.load(tmp_path / "maps.pt", weights_only=True)["d2t"].equal(torch.from_numpy(NUMBERS))
    assert np.array_equal(np.load(tmp_path / "d2t.npy"), NUMBERS)


def test_without_room_the_reason_is_the_systems(tmp_path: Path) -> None:
    with no_file_larger_than(3000), pytest.raises(OSError) as told:
        save_torch({"d2t": torch.from_numpy(NUMBERS)}, tmp_path / "maps.pt")
    assert told.value.errno == errno.EFBIG
    with no_file_larger_than(3000), pytest.raises(OSError) as told:
        save_array(NUMBERS, tmp_path / "d2t.npy")
    assert told.value.errno == errno.EFBIG
