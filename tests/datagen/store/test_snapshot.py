"""Snapshots: what was committed is what is read, whatever is committed meanwhile."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store.bucket import BucketDoor
from datagen.store.dataset import Dataset
from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from datagen.store.verify import verify
from schemas.errors import SchemaError
from tests.builders import tiny_schema
from tests.datagen.store.real_parts import commit_samples, samples_of

SCHEMA = tiny_schema()


def assert_same(dataset: Dataset, version: int, samples: list[SampleData]) -> None:
    snapshot = dataset.snapshot(version)
    assert list(snapshot.sample_ids) == sorted(sample.sample_id for sample in samples)
    for sample in samples:
        read = snapshot.read(sample.sample_id)
        assert (read.prompt_id, read.conversation_id) == (sample.prompt_id, sample.conversation_id)
        assert snapshot.conversation_of(sample.sample_id) == sample.conversation_id
        assert tuple(read.tensors) == SCHEMA.names
        for name in SCHEMA.names:
            assert read.tensors[name].tobytes() == sample.tensors[name].tobytes()
            assert np.array_equal(read.norms[name], sample.norms[name])
        for name, values in sample.tokens.items():
            assert np.array_equal(read.tokens[name], values)


def test_versions_stay_as_they_were(tmp_path: Path) -> None:
    dataset = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    first, second = samples_of(SCHEMA, [1, 64, 65]), samples_of(SCHEMA, [130, 7], seed=9)
    commit_samples(dataset, SCHEMA, first)
    early = dataset.snapshot()
    commit_samples(dataset, SCHEMA, second)
    dataset.drop([first[0].sample_id])
    other = Dataset.open(LocalDoor(tmp_path), "demo")
    assert_same(other, 1, first)
    assert_same(other, 2, first + second)
    assert_same(other, 3, first[1:] + second)
    assert len(early) == 3
    assert early.read(first[0].sample_id).n_tokens == 1


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_window_of_any_sample(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("windows")
    dataset = Dataset.create(LocalDoor(root), "demo", SCHEMA, exist_ok=False)
    lengths = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=4))
    samples = samples_of(SCHEMA, lengths)
    commit_samples(dataset, SCHEMA, samples)
    sample = data.draw(st.sampled_from(samples))
    start = data.draw(st.integers(0, sample.n_tokens))
    end = data.draw(st.integers(start, sample.n_tokens))
    names = data.draw(st.lists(st.sampled_from(SCHEMA.names), unique=True))
    check = data.draw(st.booleans())
    read = dataset.snapshot().read(sample.sample_id, names, slice(start, end), check=check)
    assert list(read.tensors) == names
    for name in names:
        assert read.tensors[name].tobytes() == sample.tensors[name][start:end].tobytes()
    assert np.array_equal(read.tokens["input_ids"], sample.tokens["input_ids"][start:end])
    assert np.array_equal(read.norms["final"], sample.norms["final"][start:end])


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    dataset = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    (sample,) = samples_of(SCHEMA, [10])
    commit_samples(dataset, SCHEMA, [sample])
    snapshot = dataset.snapshot()
    assert sample.sample_id in snapshot
    assert "00" * 32 not in snapshot
    with pytest.raises(NotFoundError, match="no such sample"):
        snapshot.read("00" * 32)
    with pytest.raises(SchemaError, match="layer3"):
        snapshot.read(sample.sample_id, ["layer3"])
    with pytest.raises(IndexError, match="0 to 10"):
        snapshot.read(sample.sample_id, tokens=slice(0, 11))


def test_a_changed_byte_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    dataset = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    (sample,) = samples_of(SCHEMA, [100])
    part = commit_samples(dataset, SCHEMA, [sample])
    path = tmp_path / f"demo/parts/{part.record.part_id}/data.zarr/final/c/0/0"
    data = bytearray(path.read_bytes())
    data[70 * 16] ^= 1
    path.write_bytes(bytes(data))
    snapshot = Dataset.open(LocalDoor(tmp_path), "demo").snapshot()
    with pytest.raises(CorruptError, match="final"):
        snapshot.read(sample.sample_id)
    snapshot.read(sample.sample_id, tokens=slice(0, 64))
    snapshot.read(sample.sample_id, ["embed"])


def test_a_bucket_holds_the_same(tmp_path: Path) -> None:
    samples = samples_of(SCHEMA, [3, 70])
    dataset = Dataset.create(BucketDoor("memory:///"), "demo", SCHEMA, exist_ok=False)
    commit_samples(dataset, SCHEMA, samples[:1])
    commit_samples(dataset, SCHEMA, samples)
    dataset.drop([samples[0].sample_id])
    assert_same(dataset, 2, samples)
    assert_same(dataset, 3, samples[1:])
    assert verify(dataset).problems == []
    with pytest.raises(NotFoundError, match=r"expected a dataset with dataset\.json, got none"):
        Dataset.open(dataset.door, "other")
