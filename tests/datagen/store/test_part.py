"""A part: what was handed in comes back bit for bit, and what does not fit is refused by name."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorstore as ts
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store import bfloat16, local, writing
from datagen.store.checksum import crc32c
from datagen.store.closed_part import ClosedPart
from datagen.store.errors import AlreadyExistsError, DoorError, RefusedError, StoreError
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from datagen.store.sample_data import SampleData
from datagen.store.shard import ShardWriter, shard_problems
from schemas.record import sha256_hex
from schemas.sample import sample_id
from schemas.schema import DTYPES, TARGET_ARGMAX, Schema
from tests.builders import random_sample, tiny_schema

RUN = "run-1"


def write(root: Path, schema: Schema, samples: list[SampleData]) -> ClosedPart:
    with PartWriter(LocalDoor(root), "demo", schema, RUN) as part:
        for sample in samples:
            part.add(sample)
        return part.close()


def read(root: Path, schema: Schema, closed: ClosedPart) -> PartReader:
    return PartReader(LocalDoor(root), "demo", closed.record.part_id, schema, closed.record_sha256)


def samples_of(schema: Schema, lengths: list[int]) -> list[SampleData]:
    return [random_sample(schema, length, seed) for seed, length in enumerate(lengths)]


def assert_equal(reader: PartReader, row_start: int, sample: SampleData, window: slice | None) -> None:
    at, n = row_start, sample.n_tokens
    cut = window or slice(0, n)
    for name, rows in sample.tensors.items():
        for check in (True, False):
            back = reader.read_tensor(at, n, name, window, check=check)
            assert back.dtype == rows.dtype
            assert back.tobytes() == rows[cut].tobytes()
        assert reader.read_norms(at, n, name, window).tobytes() == sample.norms[name][cut].tobytes()
    for name, values in sample.tokens.items():
        assert reader.read_tokens(at, n, name, window).tobytes() == values[cut].tobytes()


@given(data=st.data(), dtype=st.sampled_from(DTYPES))
@settings(deadline=None, max_examples=25)
def test_ragged_samples_and_any_window_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: Any
) -> None:
    schema = tiny_schema(dtype=dtype)
    lengths = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=6))
    samples = samples_of(schema, lengths)
    root = tmp_path_factory.mktemp("part")
    closed = write(root, schema, samples)
    reader = read(root, schema, closed)
    row_start = 0
    for sample in samples:
        assert_equal(reader, row_start, sample, None)
        first = data.draw(st.integers(0, sample.n_tokens))
        end = data.draw(st.integers(first, sample.n_tokens))
        assert_equal(reader, row_start, sample, slice(first, end))
        row_start += sample.n_tokens


def test_windows_over_more_than_one_piece_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datagen.store.part_reader._PIECE_BYTES", 1)
    schema = tiny_schema()
    samples = samples_of(schema, [10, 300])
    reader = read(tmp_path, schema, write(tmp_path, schema, samples))
    for first, end in ((0, 300), (0, 64), (1, 300), (63, 65), (64, 128), (100, 101), (256, 300), (5, 5)):
        assert_equal(reader, 10, samples[1], slice(first, end))


def test_the_group_is_plain_zarr_to_others(tmp_path: Path) -> None:
    bfloat16.register()
    schema = tiny_schema(token_columns=(*tiny_schema().token_columns, TARGET_ARGMAX))
    samples = samples_of(schema, [70, 1, 64])
    closed = write(tmp_path, schema, samples)
    folder = tmp_path / "demo" / "parts" / closed.record.part_id / "data.zarr"
    group = zarr.open_group(folder, mode="r")
    expected: dict[str, Any] = {
        name: np.concatenate([sample.tensors[name] for sample in samples]) for name in schema.names
    }
    for column in schema.token_columns:
        expected[column.name] = np.concatenate([sample.tokens[column.name] for sample in samples])
    expected["offsets"] = np.array([0, 70, 71, 135], np.int64)
    assert sorted(name for name, _ in group.members()) == sorted(expected)
    for name, values in expected.items():
        kvstore = {"driver": "file", "path": f"{folder / name}/"}
        other = ts.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result().read().result()
        for back in (np.asarray(group[name][...]), np.asarray(other)):
            assert back.dtype == values.dtype
            assert back.tobytes() == values.tobytes()


def test_the_record_names_every_file_and_its_digest(tmp_path: Path) -> None:
    schema = tiny_schema()
    closed = write(tmp_path, schema, samples_of(schema, [70, 3]))
    folder = tmp_path / "demo" / "parts" / closed.record.part_id
    data = (folder / "part.json").read_bytes()
    assert closed.record_sha256 == sha256_hex(data)
    assert json.loads(data)["format"] == "strata.part.v1"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {file.path for file in closed.record.files} | {"part.json"}
    for file in closed.record.files:
        content = (folder / file.path).read_bytes()
        assert len(content) == file.size_bytes
        assert file.sha256 == (None if file.path.endswith("c/0/0") else sha256_hex(content))
    assert closed.record.n_tokens == 73
    assert {tensor.payload_bytes for tensor in closed.record.tensors} == {73 * 16}
    for tensor in closed.record.tensors:
        key = f"demo/parts/{closed.record.part_id}/{tensor.path}"
        assert shard_problems(LocalDoor(tmp_path), key, 73, tensor.row_bytes) == []


def test_a_closed_part_hands_over_the_rows_of_the_index(tmp_path: Path) -> None:
    schema = tiny_schema()
    samples = samples_of(schema, [70, 3])
    closed = pickle.loads(pickle.dumps(write(tmp_path, schema, samples)))
    first, second = closed.samples.to_pylist()
    assert first["sample_id"].hex() == samples[0].sample_id
    assert first["prompt_id"].hex() == samples[0].prompt_id
    assert (first["row_start"], second["row_start"]) == (0, 70)
    assert second["part_id"] == closed.record.part_id
    assert second["part_sha256"] == closed.record_sha256
    assert first["n_trained"] == int(samples[0].tokens["loss_mask"].sum())
    for place, name in enumerate(schema.names):
        norms = samples[0].norms[name]
        assert first["crc32c"][place] == crc32c(samples[0].tensors[name].tobytes())
        assert first["norm_median"][place] == pytest.approx(float(np.median(norms)), rel=1e-6)
        assert first["norm_p99"][place] == pytest.approx(float(np.quantile(norms, 0.99)), rel=1e-6)


def test_samples_parquet_tells_where_a_sample_comes_from(tmp_path: Path) -> None:
    schema = tiny_schema()
    samples = [random_sample(schema, 70, 0), replace(random_sample(schema, 3, 1), text=None)]
    closed = write(tmp_path, schema, samples)
    reader = read(tmp_path, schema, closed)
    first, second = reader.samples()
    assert (first.sample_id, first.source, first.text) == (
        samples[0].sample_id,
        samples[0].source,
        samples[0].text,
    )
    assert (second.row_start, second.n_tokens, second.text) == (70, 3, None)
    assert reader.sample(70, 3) == second
    path = tmp_path / "demo" / "parts" / closed.record.part_id / "samples.parquet"
    whole = pq.read_table(path, columns=["crc32c_all.final"]).column(0).to_pylist()
    assert whole == [crc32c(sample.tensors["final"].tobytes()) for sample in samples]


def test_row_groups_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datagen.store.samples._GROUP_BYTES", 1500)
    schema = tiny_schema()
    samples = samples_of(schema, [5, 6, 70, 8, 9])
    closed = write(tmp_path, schema, samples)
    path = tmp_path / "demo" / "parts" / closed.record.part_id / "samples.parquet"
    assert pq.ParquetFile(path).num_row_groups > 1
    assert_equal(read(tmp_path, schema, closed), 11, samples[2], slice(3, 66))


Change = Callable[[SampleData], SampleData]


def with_tensor(name: str, change: Callable[[Any], Any]) -> Change:
    return lambda sample: replace(sample, tensors={**sample.tensors, name: change(sample.tensors[name])})


def with_token(name: str, change: Callable[[Any], Any]) -> Change:
    return lambda sample: replace(sample, tokens={**sample.tokens, name: change(sample.tokens[name])})


def without(field: str, name: str) -> Change:
    def drop(sample: SampleData) -> SampleData:
        kept: Any = {key: value for key, value in getattr(sample, field).items() if key != name}
        changed: dict[str, Any] = {field: kept}
        return replace(sample, **changed)

    return drop


def poked(value: float) -> Callable[[Any], Any]:
    def poke(rows: Any) -> Any:
        rows = rows.copy()
        rows[69, 7] = value
        return rows

    return poke


def swapped(ids: Any) -> Any:
    ids = ids.copy()
    ids[0], ids[1] = ids[1], ids[0]
    return ids


REFUSALS: dict[str, tuple[Change, str]] = {
    "float32 for bfloat16": (
        with_tensor("layer2", lambda t: t.astype(np.float32)),
        "layer2: expected bfloat16, got float32",
    ),
    "float16 for bfloat16": (with_tensor("layer2", lambda t: t.astype(np.float16)), "got float16"),
    "bits for values": (with_tensor("layer2", lambda t: t.view(np.uint16)), "layer2: .*got uint16"),
    "one row for all": (with_tensor("embed", lambda t: t[:1]), r"embed: expected \(70, 8\), got \(1, 8\)"),
    "a row too few": (with_tensor("embed", lambda t: t[:-1]), r"got \(69, 8\)"),
    "a row too many": (
        with_tensor("embed", lambda t: np.concatenate([t, t[:1]])),
        r"embed: expected \(70, 8\), got \(71, 8\)",
    ),
    "another width": (with_tensor("embed", lambda t: np.ascontiguousarray(t[:, :4])), r"got \(70, 4\)"),
    "transposed": (with_tensor("embed", lambda t: t.T), r"got \(8, 70\)"),
    "a batch axis": (with_tensor("embed", lambda t: t[None]), r"got \(1, 70, 8\)"),
    "not contiguous": (
        with_tensor("embed", lambda t: np.concatenate([t, t], axis=1)[:, :8]),
        "embed: expected C-contiguous rows",
    ),
    "nan": (with_tensor("final", poked(np.nan)), r"final: expected finite values.*1 rows \(tokens 69\)"),
    "inf": (with_tensor("final", poked(-np.inf)), "final: expected finite values"),
    "a tensor too few": (without("tensors", "final"), "final: expected .*got no such tensor"),
    "a tensor too many": (
        lambda sample: replace(sample, tensors={**sample.tensors, "layer1": sample.tensors["embed"]}),
        "layer1: expected only embed, layer2, final",
    ),
    "swapped token ids": (with_token("input_ids", swapped), "sample_id: expected .*the hash of input_ids"),
    "a negative token id": (with_token("input_ids", lambda ids: ids - 10_000), "input_ids: .*from 0"),
    "ids as int64": (with_token("input_ids", lambda ids: ids.astype(np.int64)), "input_ids: expected int32"),
    "no tokens": (with_token("input_ids", lambda ids: ids[:0]), "input_ids: expected at least one token"),
    "a mask as bool": (with_token("loss_mask", lambda mask: mask.astype(bool)), "loss_mask: expected uint8"),
    "a mask of 2": (with_token("loss_mask", lambda mask: mask + np.uint8(2)), "loss_mask: expected 0 and 1"),
    "a short mask": (with_token("loss_mask", lambda mask: mask[:-1]), r"loss_mask: .*got \(69,\)"),
    "no mask": (without("tokens", "loss_mask"), "loss_mask: .*no such column"),
    "a column too many": (
        lambda sample: replace(sample, tokens={**sample.tokens, "more": sample.tokens["loss_mask"]}),
        "more: expected only input_ids, loss_mask",
    ),
    "no norms": (without("norms", "embed"), "norms.embed: expected float32"),
    "nan in norms": (
        lambda sample: replace(
            sample, norms={**sample.norms, "embed": sample.norms["embed"] * np.float32("nan")}
        ),
        "norms.embed: expected finite norms",
    ),
    "a prompt id that is none": (lambda sample: replace(sample, prompt_id="x"), "prompt_id: expected 64 hex"),
}


@pytest.mark.parametrize(("change", "said"), REFUSALS.values(), ids=REFUSALS)
def test_what_does_not_fit_is_refused_and_the_part_goes_on(tmp_path: Path, change: Change, said: str) -> None:
    schema = tiny_schema()
    before, after = random_sample(schema, 5, 1), random_sample(schema, 66, 2)
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(before)
        with pytest.raises(RefusedError, match=said):
            part.add(change(random_sample(schema, 70, 3)))
        part.add(after)
        closed = part.close()
    reader = read(tmp_path, schema, closed)
    assert closed.record.n_tokens == 71
    assert_equal(reader, 0, before, None)
    assert_equal(reader, 5, after, None)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    schema = tiny_schema()
    sample = random_sample(schema, 70, 3)
    wrong = replace(
        sample,
        tensors={"embed": sample.tensors["embed"][:3], "layer2": sample.tensors["layer2"].astype("f4")},
    )
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        with pytest.raises(RefusedError) as caught:
            part.add(wrong)
        assert [problem.where for problem in caught.value.problems] == ["embed", "layer2", "final"]


def test_a_sample_comes_once_in_a_part(tmp_path: Path) -> None:
    schema = tiny_schema()
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(random_sample(schema, 5, 1))
        with pytest.raises(RefusedError, match="expected once in a part"):
            part.add(random_sample(schema, 5, 1))


def test_the_callers_buffers_may_be_reused(tmp_path: Path) -> None:
    schema = tiny_schema()
    sample, kept = random_sample(schema, 70, 1), random_sample(schema, 70, 1)
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(sample)
        for arrays in (sample.tensors, sample.tokens, sample.norms):
            for array in arrays.values():
                np.asarray(array)[...] = 0
        closed = part.close()
    assert_equal(read(tmp_path, schema, closed), 0, kept, None)


def test_there_is_no_empty_part(tmp_path: Path) -> None:
    with (
        PartWriter(LocalDoor(tmp_path), "demo", tiny_schema(), RUN) as part,
        pytest.raises(RefusedError, match="at least one sample"),
    ):
        part.close()
    assert list(LocalDoor(tmp_path).entries("")) == []


def test_a_part_that_was_not_closed_is_removed(tmp_path: Path) -> None:
    schema = tiny_schema()
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(random_sample(schema, 70, 1))
    assert list(LocalDoor(tmp_path).entries("")) == []
    with pytest.raises(StoreError, match="aborted"):
        part.add(random_sample(schema, 70, 2))


@pytest.mark.parametrize("at", [0, 1, 6, 11, 16, 21, 26, 31])
def test_a_disk_that_fails_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    schema = tiny_schema()
    calls = iter(range(1000))

    def write_all(fd: int, data: Any) -> int:
        if next(calls) >= at:
            raise OSError(28, "No space left on device")
        return original(fd, data)

    original = writing.write_all
    monkeypatch.setattr(local, "write_all", write_all)
    with pytest.raises(DoorError, match="bytes free"):
        write(tmp_path, schema, samples_of(schema, [5, 70, 6]))
    assert list(LocalDoor(tmp_path).entries("")) == []


def test_aborting_a_closed_part_leaves_it(tmp_path: Path) -> None:
    schema = tiny_schema()
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(random_sample(schema, 70, 1))
        closed = part.close()
        part.abort()
    assert len(list(LocalDoor(tmp_path).entries("demo"))) == len(closed.record.files) + 1


def test_a_part_is_never_written_over(tmp_path: Path) -> None:
    schema = tiny_schema()
    sample = random_sample(schema, 70, 1)
    closed = write(tmp_path, schema, [sample])
    with pytest.raises(AlreadyExistsError):
        PartWriter(LocalDoor(tmp_path), "demo", schema, RUN, part_id=closed.record.part_id)
    assert_equal(read(tmp_path, schema, closed), 0, sample, None)


def test_a_torn_part_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ShardWriter, rows: Any) -> None:
        raise DoorError("no more")

    schema = tiny_schema()
    with PartWriter(LocalDoor(tmp_path), "demo", schema, RUN) as part:
        part.add(random_sample(schema, 5, 1))
        monkeypatch.setattr(ShardWriter, "append", fail)
        with pytest.raises(DoorError):
            part.add(random_sample(schema, 5, 2))
        with pytest.raises(StoreError, match="torn"):
            part.close()


def test_sample_ids_are_of_the_stored_tokens(tmp_path: Path) -> None:
    schema = tiny_schema()
    sample = random_sample(schema, 70, 1)
    reader = read(tmp_path, schema, write(tmp_path, schema, [sample]))
    assert sample_id(reader.read_tokens(0, 70, "input_ids").tolist()) == sample.sample_id
