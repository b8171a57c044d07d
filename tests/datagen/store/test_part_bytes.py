"""Any run of bytes of a sample's tensor, read by itself: equal to the slice of the whole, and checked."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store import part_reader
from datagen.store.checksum import bytes_of
from datagen.store.errors import CorruptError
from datagen.store.group import tensor_path
from datagen.store.layout import Layout
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from tests.builders import random_sample, tiny_schema

N_TOKENS = 150
SCHEMA = tiny_schema()
ROW_BYTES = SCHEMA.tensor("final").row_bytes
SIZE = N_TOKENS * ROW_BYTES
WHOLE = bytes_of(random_sample(SCHEMA, N_TOKENS, 1).tensors["final"]).tobytes()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def reader(root: Path) -> PartReader:
    door = LocalDoor(root)
    with PartWriter(door, "demo", SCHEMA, "run") as part:
        part.add(random_sample(SCHEMA, 10, 0))
        part.add(random_sample(SCHEMA, N_TOKENS, 1))
        closed = part.close()
    return PartReader(door, "demo", closed.record.part_id, SCHEMA, closed.record_sha256)


@given(ends=st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_the_slice_of_the_whole(reader: PartReader, ends: list[int]) -> None:
    first, end = ends
    out = np.zeros(end - first, np.uint8)
    reader.read_bytes(10, N_TOKENS, "final", first, out)
    assert out.tobytes() == WHOLE[first:end]


@pytest.mark.parametrize(("first", "length"), [(-1, 1), (SIZE, 1), (0, SIZE + 1)])
def test_bytes_outside_of_the_sample_are_refused(reader: PartReader, first: int, length: int) -> None:
    with pytest.raises(IndexError, match=f"within 0 to {SIZE}"):
        reader.read_bytes(10, N_TOKENS, "final", first, np.zeros(length, np.uint8))


def test_planes_take_whole_tensors_some_blocks_at_a_time(
    root: Path, reader: PartReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_reader, "_PLANE_BYTES", 70 * ROW_BYTES)
    in_pieces = PartReader(LocalDoor(root), "demo", reader.part_id, SCHEMA)
    sample = random_sample(SCHEMA, N_TOKENS, 1)
    states = np.zeros((N_TOKENS, 2, ROW_BYTES), np.uint8)
    in_pieces.read_planes(10, N_TOKENS, {"final": states[:, 0], "layer2": states[:, 1]})
    for slot, name in enumerate(("final", "layer2")):
        assert states[:, slot].tobytes() == bytes_of(sample.tensors[name]).tobytes()


def test_one_byte_is_read_only_with_its_whole_block(tmp_path: Path) -> None:
    door = LocalDoor(tmp_path)
    with PartWriter(door, "demo", SCHEMA, "run") as part:
        part.add(random_sample(SCHEMA, N_TOKENS, 1))
        closed = part.close()
    part_id = closed.record.part_id
    path = tmp_path / Layout("demo").part(part_id) / tensor_path("final")
    data = bytearray(path.read_bytes())
    data[64 * ROW_BYTES] ^= 1  # the first byte of block 1
    path.write_bytes(data)
    reader = PartReader(door, "demo", part_id, SCHEMA, closed.record_sha256)
    reader.read_bytes(0, N_TOKENS, "final", 64 * ROW_BYTES - 1, np.zeros(1, np.uint8))
    reader.read_bytes(0, N_TOKENS, "final", 128 * ROW_BYTES, np.zeros(1, np.uint8))
    with pytest.raises(CorruptError, match="block 1"):
        reader.read_bytes(0, N_TOKENS, "final", 128 * ROW_BYTES - 1, np.zeros(1, np.uint8))


def test_block_checksums_are_those_of_the_blocks(reader: PartReader) -> None:
    assert len(reader.block_checksums(10, N_TOKENS, "final")) == 3
    assert len(reader.block_checksums(0, 10, "final")) == 1
