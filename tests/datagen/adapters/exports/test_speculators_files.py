"""What speculators finds in an export, by the format as it is written down: nothing of ours reads it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import load_from_disk
from safetensors import safe_open

from datagen.errors import ExportError
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.trainer_rows import train_ratio
from schemas.schema import DType, Schema
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import LENGTHS, NAMES, make_dataset, open_dataset, states_of

SLOTS = ("layer2", "layer4", "layer5", "final")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture(scope="module")
def folder(dataset: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "out"
    run_export(plan_export(Asked(dataset, "speculators", out)), workers=3)
    return out


def row_ids(folder: Path) -> list[str]:
    lines = (folder / "strata_rows.jsonl").read_text().splitlines()
    return [json.loads(line)["sample_id"] for line in lines]


def test_the_prepared_dataset_has_the_tokens_of_each_row(dataset: str, folder: Path) -> None:
    prepared = load_from_disk(folder)
    snapshot = open_dataset(dataset).snapshot()
    assert set(prepared.column_names) == {"input_ids", "loss_mask", "seq_len"}
    assert len(prepared) == len(LENGTHS) == len(row_ids(folder))
    for row, sample_id in enumerate(row_ids(folder)):
        sample, item = snapshot.read(sample_id), prepared[row]
        for name in ("input_ids", "loss_mask"):
            assert item[name].dtype == torch.int64
            assert np.array_equal(item[name].numpy(), sample.tokens[name])
        assert int(item["seq_len"]) == sample.n_tokens
    assert list(prepared.with_format(None)["seq_len"]) == [
        snapshot.location(sample_id).n_tokens for sample_id in row_ids(folder)
    ]


def test_each_rows_states_are_stacked_by_slot_the_target_last(dataset: str, folder: Path) -> None:
    snapshot = open_dataset(dataset).snapshot()
    names = sorted(path.name for path in (folder / "hidden_states").iterdir())
    assert names == sorted(f"hs_{row}.safetensors" for row in range(len(LENGTHS)))
    for row, sample_id in enumerate(row_ids(folder)):
        sample, read = snapshot.read(sample_id), states_of(folder, row)
        assert read.keys() == {"hidden_states", "token_ids"}
        assert read["hidden_states"].dtype == torch.bfloat16
        assert read["hidden_states"].shape == (sample.n_tokens, len(SLOTS), 8)
        for slot, name in enumerate(SLOTS):
            # By bits: -0.0 is among the values.
            got = read["hidden_states"][:, slot].contiguous().view(torch.int16).numpy()
            assert np.array_equal(got, sample.tensors[name].view(np.int16)), (row, name)
        assert read["token_ids"].dtype == torch.int64
        assert np.array_equal(read["token_ids"].numpy(), sample.tokens["input_ids"])


def test_a_slot_has_its_name_where_the_trainer_does_not_look(folder: Path) -> None:
    with safe_open(folder / "hidden_states" / "hs_0.safetensors", "pt") as file:
        said = file.metadata()
    assert said == {"strata.slots": ",".join(SLOTS), "strata.sample_id": row_ids(folder)[0]}


def test_token_counts_are_a_dict_of_what_is_trained_on(dataset: str, folder: Path) -> None:
    snapshot = open_dataset(dataset).snapshot()
    expected: dict[int, int] = {}
    for sample_id in snapshot.sample_ids:
        tokens = snapshot.read(sample_id).tokens
        for token, trained in zip(tokens["input_ids"], tokens["loss_mask"], strict=True):
            if trained:
                expected[int(token)] = expected.get(int(token), 0) + 1
    assert torch.load(folder / "token_freq.pt", weights_only=True) == expected


@pytest.mark.parametrize(("dtype", "read_as"), [("float16", torch.float16), ("float32", torch.float32)])
def test_states_keep_the_dtype_that_they_are_stored_in(
    tmp_path: Path, dtype: DType, read_as: torch.dtype
) -> None:
    plan = plan_export(Asked(make_dataset(tmp_path, dtype=dtype), "speculators", tmp_path / "out"))
    run_export(plan, workers=1)
    assert states_of(tmp_path / "out", 0)["hidden_states"].dtype == read_as
    sizes = {file.path: file.size_bytes for file in plan.files}
    for path, size_bytes in sizes.items():
        assert (tmp_path / "out" / path).stat().st_size == size_bytes


def test_slots_of_several_dtypes_have_no_one_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = make_dataset(tmp_path)
    mixed = Schema.declare(tiny_target(n_layers=8), NAMES, "bfloat16")
    tensors = [
        spec.model_copy(update={"dtype": "float32"}) if spec.name == "final" else spec
        for spec in mixed.tensors
    ]
    changed = mixed.model_copy(update={"tensors": tuple(tensors)})
    monkeypatch.setattr("datagen.store.dataset.Dataset.schema", lambda *_: changed)
    with pytest.raises(ExportError) as error:
        plan_export(Asked(reference, "speculators", tmp_path / "out"))
    (problem,) = error.value.problems
    assert "expected one dtype" in problem.message
    assert "final float32" in problem.message


def test_a_ratio_gives_the_trainer_each_cut_exactly() -> None:
    for n_rows in (2, 3, 7, 436, 100_003):
        for n_train in {1, n_rows // 3 or 1, n_rows // 2, n_rows - 1}:
            assert int(n_rows * train_ratio(n_train, n_rows)) == n_train


def test_a_long_sample_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = make_dataset(tmp_path, lengths=(700, 129))
    monkeypatch.setattr("datagen.adapters.exports.lazy_states.PIECE_BYTES", 4 * 16 * 64 * 3)
    run_export(plan_export(Asked(reference, "speculators", tmp_path / "out")), workers=2)
    snapshot = open_dataset(reference).snapshot()
    for row, sample_id in enumerate(row_ids(tmp_path / "out")):
        got = states_of(tmp_path / "out", row)["hidden_states"]
        stored = snapshot.read(sample_id, ("layer4",)).tensors["layer4"]
        assert np.array_equal(got[:, 1].contiguous().view(torch.int16).numpy(), stored.view(np.int16))
