"""Files in torch's own form: as torch and zip readers find them, as torch itself writes them."""

import io
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.adapters.exports import torch_files
from datagen.adapters.exports.torch_files import LazyTensor, TorchFile, of_array

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


def values_of(dtype: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.generic]:
    numpy_dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    return np.random.default_rng(seed).integers(0, 2, shape).astype(numpy_dtype)


def as_torch(values: NDArray[np.generic]) -> torch.Tensor:
    dtype = DTYPES[values.dtype.name]
    return torch.frombuffer(bytearray(values.tobytes()), dtype=dtype).reshape(values.shape)


def written(content: object, path: Path) -> TorchFile:
    file = TorchFile(content)
    path.write_bytes(b"".join(file.pieces()))
    assert path.stat().st_size == file.size_bytes
    return file


@settings(deadline=None, max_examples=20)
@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    text=st.text(max_size=300),
    flag=st.booleans(),
    number=st.integers(0, 2**40),
)
def test_torch_and_zip_readers_find_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    shape: tuple[int, ...],
    text: str,
    flag: bool,
    number: int,
) -> None:
    path = tmp_path_factory.mktemp("torch") / "sample.pt"
    first, second = values_of(dtype, shape), values_of(dtype, shape, 1)
    content = {"a": of_array(first), "list": [of_array(second), of_array(first)], "flag": flag, "id": text}
    written({**content, "number": number}, path)
    for mmap in (False, True):
        read = torch.load(path, mmap=mmap, weights_only=True)
        assert list(read) == ["a", "list", "flag", "id", "number"]
        assert (read["flag"], read["id"], read["number"]) == (flag, text, number)
        for got, values in zip((read["a"], *read["list"]), (first, second, first), strict=True):
            assert got.dtype == DTYPES[dtype]
            assert got.is_contiguous()
            assert torch.equal(got, as_torch(values))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_it_is_what_torch_itself_writes_but_for_its_own_checksum_of_all() -> None:
    states = values_of("bfloat16", (70, 8))
    content = {
        "input_ids": of_array(np.arange(300)),
        "states": [of_array(states), of_array(states)],
        "id": "x",
        "on": True,
    }
    ours = b"".join(TorchFile(content).pieces())
    sink = io.BytesIO()
    theirs: dict[str, Any] = {
        "input_ids": torch.arange(300),
        "states": [as_torch(states), as_torch(states)],
        "id": "x",
        "on": True,
    }
    torch.save(theirs, sink)
    mine, own = zipfile.ZipFile(io.BytesIO(ours)), zipfile.ZipFile(sink)
    names = [name for name in own.namelist() if not name.endswith("/.data/serialization_id")]
    assert mine.namelist() == names
    for name in names:
        assert mine.read(name) == own.read(name), name


def test_storages_begin_where_they_can_be_mapped() -> None:
    data = b"".join(TorchFile({str(n): of_array(values_of("uint8", (n,))) for n in range(1, 200)}).pieces())
    for info in zipfile.ZipFile(io.BytesIO(data)).infolist():
        name_bytes, extra_bytes = np.frombuffer(data, "<u2", 2, info.header_offset + 26).tolist()
        assert (info.header_offset + 30 + name_bytes + extra_bytes) % torch_files.ALIGNMENT == 0


def test_equal_contents_are_equal_bytes() -> None:
    def content() -> dict[str, object]:
        return {"states": of_array(values_of("float16", (3, 5))), "id": "conversation 7"}

    assert list(TorchFile(content()).pieces()) == list(TorchFile(content()).pieces())


def test_no_more_than_a_piece_is_held() -> None:
    n_pieces, rows = 64, 1024

    def read() -> Iterator[NDArray[np.generic]]:
        for _ in range(n_pieces):
            yield np.ones((rows, 256), np.float32)

    file = TorchFile({"states": LazyTensor("float32", (n_pieces * rows, 256), read)})
    tracemalloc.start()
    total = sum(len(piece) for piece in file.pieces())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == file.size_bytes > 64 * 2**20
    assert peak < 4 * 2**20


@pytest.mark.parametrize("n_read", [1, 3])
def test_a_reader_that_gives_another_number_of_values_is_told(n_read: int) -> None:
    file = TorchFile({"ids": LazyTensor("int64", (2,), lambda: [np.zeros(n_read, np.int64)])})
    with pytest.raises(ValueError, match=f"archive/data/0: expected 16 bytes, got {8 * n_read}"):
        list(file.pieces())


def test_records_and_addresses_beyond_four_gigabytes(tmp_path: Path) -> None:
    zeros, n_times = np.zeros(2**24, np.float32), 2**6 + 1
    large = LazyTensor("float32", (n_times, 2**24), lambda: [zeros] * n_times)
    file = TorchFile({"large": large, "small": of_array(np.arange(3))})
    path = tmp_path / "sample.pt"
    with open(path, "wb") as sink:  # full of holes: it takes no room
        for piece in file.pieces():
            if len(piece) == zeros.nbytes:
                sink.seek(len(piece), io.SEEK_CUR)
            else:
                sink.write(piece)
    assert path.stat().st_size == file.size_bytes > 4 * 2**30
    read = torch.load(path, mmap=True, weights_only=True)
    assert read["large"].shape == large.shape
    assert read["small"].tolist() == [0, 1, 2]
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("archive/data/0").file_size == large.size_bytes
        assert archive.read("archive/data/1") == np.arange(3).tobytes()
