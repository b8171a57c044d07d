"""The plan of a body: checksums known before a byte is sent, little read for it, and damage that is named."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.store.checksum import crc32c
from datagen.store.dataset import Dataset
from datagen.store.errors import CorruptError
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from datagen.store.snapshot import Snapshot
from service.answers import body as body_module
from service.answers.body import Body, Planner, Rows, n_bytes_of
from service.answers.pieces import Stored, pieces
from tests.service.serving import make_dataset

NAMES = ("embed", "layer2", "final", "input_ids", "loss_mask")


class CountingDoor(LocalDoor):
    """A folder that counts the bytes of tensors that are read."""

    n_bytes = 0

    def read_into(self, key: str, offset: int, buffer: NDArray[np.uint8]) -> None:
        self.n_bytes += len(buffer)
        super().read_into(key, offset, buffer)


class Stocked(NamedTuple):
    """A dataset in a folder, its reader, and what was written."""

    root: Path
    door: CountingDoor
    snapshot: Snapshot
    samples: list[SampleData]

    def plan(self, number: int, first: int, end: int, name: str = "final") -> Body:
        location = self.snapshot.location(self.samples[number].sample_id)
        return Planner(self.snapshot, {}).sample(Rows(location, first, end), [name], "raw")


@pytest.fixture
def stocked(tmp_path: Path) -> Iterator[Stocked]:
    samples = make_dataset(tmp_path, lengths=(10, 300))
    door = CountingDoor(tmp_path)
    yield Stocked(tmp_path, door, Dataset.open(door, "demo").snapshot(), samples)
    door.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Stocked:
    root = tmp_path_factory.mktemp("root")
    samples = make_dataset(root, lengths=(10, 300))
    door = CountingDoor(root)
    return Stocked(root, door, Dataset.open(door, "demo").snapshot(), samples)


def read(body: Body) -> bytes:
    return b"".join(piece.read() for piece in pieces(body.segments, 1000))


@given(ends=st.tuples(st.integers(0, 299), st.integers(1, 300)), keep=st.sampled_from([0, 200, 2**20]))
@settings(deadline=None, max_examples=60)
def test_a_window_is_summed_whether_its_cut_blocks_are_kept_or_not(
    shared: Stocked, ends: tuple[int, int], keep: int
) -> None:
    first, end = min(ends), max(ends)
    if first == end:
        end += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_module, "KEEP_BYTES", keep)
        body = shared.plan(1, first, end)
    data = read(body)
    assert data == shared.samples[1].tensors["final"][first:end].tobytes()
    assert int(body.headers["Strata-Crc32c"], 16) == crc32c(data)
    assert body.size == len(data)


def test_only_the_cut_blocks_of_a_window_are_read_beforehand(stocked: Stocked) -> None:
    block = 64 * 16
    for first, end, n_blocks in (
        (0, 300, 0),
        (64, 256, 0),
        (64, 300, 0),
        (65, 300, 1),
        (3, 9, 1),
        (3, 200, 2),
    ):
        before = stocked.door.n_bytes
        body = stocked.plan(1, first, end)
        assert stocked.door.n_bytes - before == n_blocks * block
        read(body)
        n_touched = -(-end // 64) - first // 64
        last = 44 * 16 if end == 300 else block
        assert stocked.door.n_bytes - before == (n_touched - 1) * block + last, "each block is read once"


def test_what_is_kept_of_cut_blocks_is_bounded(stocked: Stocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "KEEP_BYTES", 100)
    body = stocked.plan(1, 3, 200)
    assert [type(segment) for segment in body.segments] == [Stored] * 3
    assert len(read(body)) == 197 * 16


def test_damage_in_a_cut_block_is_found_while_planning(stocked: Stocked) -> None:
    (path,) = stocked.root.glob("demo/parts/*/data.zarr/final/c/0/0")
    data = bytearray(path.read_bytes())
    data[10 * 16] ^= 1  # in the first block of the sample that starts at row 10
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="block 0"):
        stocked.plan(1, 3, 70)
    whole = stocked.plan(1, 0, 70)
    with pytest.raises(CorruptError, match="block 0"):
        read(whole)
    stocked.plan(1, 64, 70)


def test_a_part_that_is_gone_is_damage_that_names_it(stocked: Stocked) -> None:
    (part,) = (path for path in (stocked.root / "demo" / "parts").iterdir() if path.is_dir())
    shutil.rmtree(part)
    for name in NAMES:
        with pytest.raises(CorruptError) as raised:
            stocked.plan(0, 0, 10, name)
        assert part.name in str(raised.value)


def test_the_size_is_known_before_anything_is_read(stocked: Stocked) -> None:
    sizes = [stocked.plan(1, 0, 300, name).size for name in NAMES]
    assert n_bytes_of(stocked.snapshot, NAMES, 300) == sum(sizes)
