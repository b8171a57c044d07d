"""What is read at a place is what lies there, or an error of that file."""

from pathlib import Path

import numpy as np
import pytest

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.read_at import read_at
from datagen.store.dtypes import NUMPY_DTYPES


def test_an_array_is_read_where_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "shard.bin"
    values = np.arange(24, dtype=np.uint16)
    file.write_bytes(b"head" + values.tobytes())
    found = read_at(file, (3, 4), NUMPY_DTYPES["bfloat16"], 4 + 2 * 8)
    assert found.shape == (3, 4)
    assert np.array_equal(found.view(np.uint16).reshape(-1), values[8:20])
    assert read_at(file, (0, 4), np.int64, 4).shape == (0, 4)


def test_without_values_nothing_is_read(tmp_path: Path) -> None:
    found = read_at(tmp_path / "none", (3, 4), NUMPY_DTYPES["bfloat16"], 0, values=False)
    assert (found.shape, found.dtype, found.nbytes) == ((3, 4), NUMPY_DTYPES["bfloat16"], 24)


def test_a_file_that_ends_before_it_or_is_gone_is_told(tmp_path: Path) -> None:
    file = tmp_path / "shard.bin"
    file.write_bytes(bytes(100))
    with pytest.raises(ForeignFileError, match="expected 80 bytes from byte 40, got 60"):
        read_at(file, (10,), np.int64, 40)
    with pytest.raises(ForeignFileError, match="expected a file, got none of this name"):
        read_at(tmp_path / "none", (10,), np.int64, 40)
    with pytest.raises(ForeignFileError, match="got: is a directory"):
        read_at(tmp_path, (10,), np.int64, 40)
