"""Missing, short or changed bytes of a part are an error that names them, never zeros."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from datagen.store.sample_data import SampleData
from schemas.errors import SchemaError
from schemas.schema import Schema
from tests.builders import random_sample, tiny_schema, tiny_target

ROW = 16
"""Bytes of a row of the tiny schema."""


@dataclass
class Written:
    root: Path
    schema: Schema
    samples: list[SampleData]
    part_id: str
    sha256: str

    @property
    def folder(self) -> Path:
        return self.root / "demo" / "parts" / self.part_id

    def reader(self, schema: Schema | None = None) -> PartReader:
        return PartReader(
            LocalDoor(self.root), "demo", self.part_id, schema or self.schema, part_sha256=self.sha256
        )


@pytest.fixture
def part(tmp_path: Path) -> Written:
    schema = tiny_schema()
    samples = [random_sample(schema, 10, 0), random_sample(schema, 200, 1)]
    with PartWriter(LocalDoor(tmp_path), "demo", schema, "run-1") as writer:
        for sample in samples:
            writer.add(sample)
        closed = writer.close()
    return Written(tmp_path, schema, samples, closed.record.part_id, closed.record_sha256)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_names_tensor_sample_and_block(part: Written) -> None:
    flip(part.folder / "data.zarr/layer2/c/0/0", (10 + 64 + 3) * ROW)
    with pytest.raises(CorruptError) as caught:
        part.reader().read_tensor(10, 200, "layer2")
    (problem,) = caught.value.problems
    assert problem.where == f"demo/parts/{part.part_id}/data.zarr/layer2/c/0/0"
    assert f"sample {part.samples[1].sample_id}, block 1: expected crc32c 0x" in problem.message


def test_planes_name_every_changed_block(part: Written) -> None:
    for row in (10, 10 + 64, 210 - 1):
        flip(part.folder / "data.zarr/layer2/c/0/0", row * ROW)
    with pytest.raises(CorruptError, match="layer2 is damaged") as caught:
        part.reader().read_planes(10, 200, {"layer2": np.empty((200, ROW), np.uint8)})
    assert [problem.message.partition(":")[0].rpartition(" ")[2] for problem in caught.value.problems] == [
        *"013"
    ]


def test_planes_of_a_file_that_is_gone_are_damage(part: Written) -> None:
    (part.folder / "data.zarr/layer2/c/0/0").unlink()
    with pytest.raises(CorruptError, match="layer2 from row 10 on cannot be read"):
        part.reader().read_planes(10, 200, {"layer2": np.empty((200, ROW), np.uint8)})


def test_every_changed_block_is_told(part: Written) -> None:
    for row in (10, 210 - 1):
        flip(part.folder / "data.zarr/layer2/c/0/0", row * ROW)
    with pytest.raises(CorruptError) as caught:
        part.reader().read_tensor(10, 200, "layer2")
    assert [problem.message.split(":")[0][-7:] for problem in caught.value.problems] == ["block 0", "block 3"]


def test_a_window_is_checked_by_the_blocks_it_touches(part: Written) -> None:
    flip(part.folder / "data.zarr/layer2/c/0/0", (10 + 64) * ROW)
    reader = part.reader()
    sample = part.samples[1]
    for window in (slice(0, 64), slice(128, 200)):
        assert (
            reader.read_tensor(10, 200, "layer2", window).tobytes()
            == sample.tensors["layer2"][window].tobytes()
        )
    for window in (slice(127, 128), slice(0, 65), slice(100, 110)):
        with pytest.raises(CorruptError, match="block 1"):
            reader.read_tensor(10, 200, "layer2", window)
    assert reader.read_tensor(10, 200, "embed").tobytes() == sample.tensors["embed"].tobytes()


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("left", [0, 50 * ROW, 209 * ROW + 5])
def test_a_short_file_is_an_error_not_zeros(part: Written, check: bool, left: int) -> None:
    path = part.folder / "data.zarr/final/c/0/0"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CorruptError, match=r"final/c/0/0: expected .* bytes .*cut short"):
        part.reader().read_tensor(10, 200, "final", check=check)


@pytest.mark.parametrize("check", [True, False])
def test_a_missing_file_is_an_error_not_zeros(part: Written, check: bool) -> None:
    (part.folder / "data.zarr/final/c/0/0").unlink()
    with pytest.raises(CorruptError, match=r"final from row 10 on cannot be read\n.*final/c/0/0"):
        part.reader().read_tensor(10, 200, "final", check=check)


def test_zeros_in_place_of_data_are_found(part: Written) -> None:
    path = part.folder / "data.zarr/final/c/0/0"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptError, match="final is damaged"):
        part.reader().read_tensor(10, 200, "final")


SMALL: dict[str, Callable[[PartReader], object]] = {
    "data.zarr/input_ids/c/0": lambda reader: reader.read_tokens(10, 200, "input_ids"),
    "data.zarr/loss_mask/c/0": lambda reader: reader.read_tokens(10, 200, "loss_mask"),
    "samples.parquet": lambda reader: reader.read_tensor(10, 200, "embed"),
    "part.json": lambda reader: reader.record,
}


@pytest.mark.parametrize(("path", "read"), SMALL.items(), ids=SMALL)
def test_a_changed_small_file_is_named(
    part: Written, path: str, read: Callable[[PartReader], object]
) -> None:
    flip(part.folder / path, 9)
    with pytest.raises(CorruptError, match=f"{path}: expected sha256"):
        read(part.reader())


@pytest.mark.parametrize(("path", "read"), list(SMALL.items())[:3], ids=list(SMALL)[:3])
def test_a_missing_small_file_is_named(
    part: Written, path: str, read: Callable[[PartReader], object]
) -> None:
    (part.folder / path).unlink()
    with pytest.raises(CorruptError, match=f"{path} is gone"):
        read(part.reader())


def test_without_its_record_there_is_no_part(part: Written) -> None:
    (part.folder / "part.json").unlink()
    with pytest.raises(NotFoundError, match=r"part\.json"):
        part.reader().read_tensor(10, 200, "embed", check=False)


def test_a_part_of_another_schema_is_refused(part: Written) -> None:
    other = tiny_schema(target=tiny_target(vocab_size=1001))
    with pytest.raises(CorruptError, match=f"expected {other.fingerprint}, got {part.schema.fingerprint}"):
        _ = part.reader(other).record


def test_rows_that_no_sample_has_are_refused(part: Written) -> None:
    reader = part.reader()
    with pytest.raises(NotFoundError, match="expected a sample of 199 tokens at row 10"):
        reader.read_tensor(10, 199, "embed")
    for check in (True, False):
        with pytest.raises(CorruptError, match="expected rows below 210, got 10 to 211"):
            reader.read_tensor(10, 201, "embed", check=check)
    with pytest.raises(CorruptError, match="expected rows below 210"):
        reader.read_tokens(10, 201, "input_ids")


def test_a_window_is_never_clipped(part: Written) -> None:
    reader = part.reader()
    for window in (slice(0, 201), slice(5, 4), slice(-1, None), slice(0, 10, 2)):
        with pytest.raises(IndexError, match="within 0 to 200"):
            reader.read_tensor(10, 200, "embed", window)


def test_what_the_schema_does_not_have_is_named(part: Written) -> None:
    reader = part.reader()
    with pytest.raises(SchemaError, match="expected one of embed, layer2, final, got 'layer3'"):
        reader.read_tensor(10, 200, "layer3")
    with pytest.raises(SchemaError, match="expected one of input_ids, loss_mask, got 'labels'"):
        reader.read_tokens(10, 200, "labels")


def test_a_buffer_of_the_caller_is_filled(part: Written) -> None:
    rows = part.samples[1].tensors["embed"]
    out = np.empty_like(rows)
    assert part.reader().read_tensor(10, 200, "embed", out=out) is out
    assert out.tobytes() == rows.tobytes()
    with pytest.raises(ValueError, match="expected `out`"):
        part.reader().read_tensor(10, 200, "embed", out=out[:100])
