"""An export that is brought in is the same dataset, for every format that keeps what it was given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.config import PartSettings
from schemas.schema import DType
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.datagen.adapters.exports.target_builders import model_target, save_model
from tests.datagen.ingest.ingest_builders import assert_same, back, export, ingest, unproven

NAMES = ("embed", "layer2", "layer3", "layer4", "layer5", "layer6", "final", "final_normed")
SLOTS = {
    "speculators": ("layer2", "layer4", "layer5", "final"),
    "speculators-v1": ("layer3", "layer5", "layer6", "final"),
    "specforge": ("layer2", "layer4", "layer5", "final_normed"),
    "modelopt": ("layer2", "layer4", "layer5", "final_normed"),
    "deepspec": ("embed", "layer3", "layer6", "final_normed"),
}
"""Each format's own default; DeepSpec has none, and its files say what they are."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("dataset"), names=NAMES)


@pytest.mark.parametrize("file_format", SLOTS)
def test_every_tensor_comes_back_bit_for_bit(file_format: str, dataset: str, tmp_path: Path) -> None:
    fc = SLOTS[file_format][:3] if file_format == "deepspec" else None
    out = export(dataset, file_format, tmp_path / "out", fc=fc)
    plan, done = ingest(unproven(file_format, [out], tmp_path))
    assert plan.labels == SLOTS[file_format]
    assert plan.said_by == ("the files" if file_format == "deepspec" else "the card beside them")
    expected, got = open_dataset(dataset).snapshot(), back(tmp_path)
    assert list(got.sample_ids) == list(expected.sample_ids)
    assert (done.n_samples, done.outcome, done.refused) == (len(expected), "complete", ())
    for sample_id in got.sample_ids:
        names = tuple(name for name in NAMES if name in plan.labels)
        assert_same(got.read(sample_id), expected.read(sample_id, names=names), names)
    assert [problem for problem in plan.notes if problem.kind != "names"] == []


def test_eagle_comes_back_as_the_float16_that_it_was_written_in(dataset: str, tmp_path: Path) -> None:
    out = export(dataset, "eagle", tmp_path / "out")
    plan, _ = ingest(unproven("eagle", [out], tmp_path))
    assert plan.labels == ("final_normed",)
    expected, got = open_dataset(dataset).snapshot(), back(tmp_path)
    assert list(got.sample_ids) == list(expected.sample_ids)
    for sample_id in got.sample_ids:
        whole = expected.read(sample_id, names=("final_normed",)).tensors["final_normed"]
        assert np.array_equal(got.read(sample_id).tensors["final_normed"], whole.astype(np.float16))
        assert got.conversation_of(sample_id) == expected.conversation_of(sample_id)


def test_automodels_inputs_come_back_with_the_tokens_that_its_shift_drops(tmp_path: Path) -> None:
    target, fc = model_target(), ("layer2", "layer4", "layer5")
    reference = make_dataset(tmp_path, (*fc, "final_normed"), (5, 33, 1, 20), target=target)
    model = str(save_model(tmp_path / "model"))
    more: dict[str, Any] = {"target_model": model, "draft_vocab_size": 20, "fc": fc}
    out = export(reference, "automodel", tmp_path / "out", **more)
    plan, _ = ingest(unproven("automodel", [out], tmp_path))
    expected, got = open_dataset(reference).snapshot(), back(tmp_path)
    assert (plan.labels, plan.said_by) == (fc, "the files")
    assert list(got.sample_ids) == list(expected.sample_ids)
    for sample_id in got.sample_ids:
        assert_same(got.read(sample_id), expected.read(sample_id, names=fc), fc)


@settings(deadline=None, max_examples=5)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=7),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    file_format=st.sampled_from(["speculators", "specforge", "modelopt"]),
    max_samples=st.integers(1, 5),
)
def test_of_any_lengths_and_dtype_in_parts_of_any_size(
    lengths: list[int],
    dtype: DType,
    file_format: str,
    max_samples: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    dataset = make_dataset(folder, names=NAMES, lengths=lengths, dtype=dtype)
    out = export(dataset, file_format, folder / "out")
    plan, _ = ingest(unproven(file_format, [out], folder), parts=PartSettings(max_samples=max_samples))
    expected, got = open_dataset(dataset).snapshot(), back(folder)
    assert list(got.sample_ids) == list(expected.sample_ids)
    names = tuple(name for name in NAMES if name in plan.labels)
    for sample_id in got.sample_ids:
        assert_same(got.read(sample_id), expected.read(sample_id, names=names), names)


def test_an_export_of_what_came_in_is_the_export_that_it_came_from(dataset: str, tmp_path: Path) -> None:
    first = export(dataset, "speculators", tmp_path / "first")
    ingest(unproven("speculators", [first], tmp_path))
    again = export(f"{tmp_path}/back", "speculators", tmp_path / "again")
    for path in first.rglob("*"):
        if path.is_file() and path.suffix in {".safetensors", ".arrow", ".jsonl"}:
            assert path.read_bytes() == (again / path.relative_to(first)).read_bytes(), path
