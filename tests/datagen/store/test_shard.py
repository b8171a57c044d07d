"""What the store writes as a stream is Zarr to zarr-python and to tensorstore, bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr
from numpy.typing import NDArray

from datagen.store import bfloat16
from datagen.store.checksum import block_checksums, crc32c, scan
from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.local import LocalDoor
from datagen.store.metadata import tensor_json
from datagen.store.shard import ShardWriter, shard_problems, shard_size
from schemas.schema import DTYPES
from tests.builders import random_rows

LENGTHS = (1, 63, 64, 65, 1000)


def write(root: Path, rows: NDArray[Any], dtype: str, pieces: int = 3) -> LocalDoor:
    door = LocalDoor(root)
    row_bytes = rows.shape[1] * rows.itemsize
    writer = ShardWriter.open(door, "array/c/0/0", row_bytes)
    for piece in np.array_split(rows, pieces):
        if len(piece):
            writer.append(piece)
    assert writer.finish() == shard_size(len(rows), row_bytes)
    door.create("array/zarr.json", tensor_json(rows.shape[0], rows.shape[1], dtype))
    assert shard_problems(door, "array/c/0/0", len(rows), row_bytes) == []
    return door


def read_zarr(root: Path) -> NDArray[Any]:
    bfloat16.register()
    return np.asarray(zarr.open_array(root / "array", mode="r")[...])


def read_tensorstore(root: Path) -> NDArray[Any]:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{root / 'array'}/"}}
    return np.asarray(ts.open(spec, read=True).result().read().result())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_rows", LENGTHS)
@pytest.mark.parametrize("read", [read_zarr, read_tensorstore], ids=["zarr-python", "tensorstore"])
def test_others_read_the_same_bits(tmp_path: Path, dtype: str, n_rows: int, read: Any) -> None:
    rows = random_rows(n_rows, 12, dtype, np.random.default_rng(n_rows))
    write(tmp_path, rows, dtype)
    back = read(tmp_path)
    assert back.dtype == rows.dtype
    assert back.shape == rows.shape
    assert back.tobytes() == rows.tobytes()


@pytest.mark.parametrize("read", [read_zarr, read_tensorstore], ids=["zarr-python", "tensorstore"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_bit_pattern_comes_back(tmp_path: Path, dtype: str, read: Any) -> None:
    rows = np.arange(65536, dtype=np.uint16).view(NUMPY_DTYPES[dtype]).reshape(4096, 16)
    write(tmp_path, rows, dtype)
    assert read(tmp_path).tobytes() == rows.tobytes()


@pytest.mark.parametrize("read", [read_zarr, read_tensorstore], ids=["zarr-python", "tensorstore"])
def test_a_tensor_of_negative_zeros_keeps_its_signs(tmp_path: Path, read: Any) -> None:
    rows = np.full((130, 4), -0.0, np.float32).astype(NUMPY_DTYPES["bfloat16"])
    write(tmp_path, rows, "bfloat16")
    assert (read(tmp_path).view(np.uint16) == 0x8000).all()


def test_the_file_is_the_tensor_followed_by_the_index(tmp_path: Path) -> None:
    rows = random_rows(65, 4, "bfloat16", np.random.default_rng(0))
    write(tmp_path, rows, "bfloat16")
    data = (tmp_path / "array" / "c" / "0" / "0").read_bytes()
    assert data[: rows.nbytes] == rows.tobytes()
    assert data[rows.nbytes : 128 * 8] == bytes(63 * 8)
    index, digest = data[128 * 8 : -4], data[-4:]
    assert np.frombuffer(index, "<u8").tolist() == [0, 512, 512, 512]
    assert int.from_bytes(digest, "little") == crc32c(index)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1], "expected 1060 bytes, got 1059"),
        (lambda data: data + b"\0", "expected 1060 bytes, got 1061"),
        (lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "rows end to end"),
    ],
    ids=["short", "long", "index"],
)
def test_a_changed_shard_is_named(tmp_path: Path, change: Any, said: str) -> None:
    door = write(tmp_path, random_rows(65, 4, "bfloat16", np.random.default_rng(0)), "bfloat16")
    path = tmp_path / "array" / "c" / "0" / "0"
    path.write_bytes(change(path.read_bytes()))
    (problem,) = shard_problems(door, "array/c/0/0", 65, 8)
    assert problem.where == "array/c/0/0"
    assert said in problem.message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (problem,) = shard_problems(LocalDoor(tmp_path), "array/c/0/0", 65, 8)
    assert "array/c/0/0" in problem.where


def test_registering_twice_is_once() -> None:
    bfloat16.register()
    bfloat16.register()
    assert zarr.dtype.parse_dtype("bfloat16", zarr_format=3).to_native_dtype() == NUMPY_DTYPES["bfloat16"]


def test_what_zarr_writes_with_the_type_declares_the_spec_name(tmp_path: Path) -> None:
    bfloat16.register()
    values = np.arange(6, dtype=np.float32).astype(NUMPY_DTYPES["bfloat16"]).reshape(3, 2)
    array = zarr.create_array(
        tmp_path / "array", shape=(3, 2), dtype="bfloat16", config={"write_empty_chunks": True}
    )
    array[...] = values
    assert json.loads((tmp_path / "array" / "zarr.json").read_text())["data_type"] == "bfloat16"
    assert read_tensorstore(tmp_path).tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_rows", LENGTHS)
def test_a_scan_sums_blocks_and_the_whole(dtype: str, n_rows: int) -> None:
    rows = random_rows(n_rows, 5, dtype, np.random.default_rng(n_rows))
    found = scan(rows, dtype)
    assert found.whole == crc32c(rows.tobytes())
    assert found.blocks.tolist() == [crc32c(rows[at : at + 64].tobytes()) for at in range(0, n_rows, 64)]
    assert found.blocks.tolist() == block_checksums(rows).tolist()
    assert found.not_finite.tolist() == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_scan_finds_every_row_that_is_not_finite(dtype: str, value: float) -> None:
    rows = random_rows(200, 5, dtype, np.random.default_rng(0))
    rows[[0, 63, 64, 199], [0, 4, 2, 1]] = value
    assert scan(rows, dtype).not_finite.tolist() == [0, 63, 64, 199]


def test_the_largest_finite_values_pass() -> None:
    for dtype, bits in (("bfloat16", 0x7F7F), ("float16", 0x7BFF)):
        rows = np.full((65, 3), bits, np.uint16).view(NUMPY_DTYPES[dtype])
        assert scan(rows, dtype).not_finite.tolist() == []
