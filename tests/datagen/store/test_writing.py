"""Every byte of a buffer is written, however long it is and whatever a call takes."""

import os
from pathlib import Path

import numpy as np
import pytest

from datagen.store.writing import WRITE_BYTES, write_all


@pytest.mark.parametrize("size", [0, 1, WRITE_BYTES - 1, WRITE_BYTES, WRITE_BYTES + 1, 3 * WRITE_BYTES + 7])
def test_all_of_it_is_written(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    assert write_all(fd, data) == size
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == data


def test_what_a_call_leaves_is_written_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = bytearray()

    def a_few(fd: int, view: memoryview) -> int:
        taken.extend(view[:5])
        return min(5, len(view))

    monkeypatch.setattr(os, "write", a_few)
    assert write_all(0, memoryview(np.arange(4, dtype=np.int64).data)) == 32
    assert taken == np.arange(4, dtype=np.int64).tobytes()
