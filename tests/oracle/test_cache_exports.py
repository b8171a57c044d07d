"""Exported caches, read by the very code that trains on them: NeMo Automodel's reader and arithmetic."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from datagen.adapters.imports.automodel import AutomodelFiles
from datagen.adapters.imports.format import ImportOptions
from datagen.adapters.tensor_arrays import array_of
from datagen.checks.rows import row_norms
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from datagen.store.snapshot import Sample
from schemas.schema import Schema
from tests.builders import random_sample
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.datagen.adapters.exports.target_builders import N_LAYERS, VOCAB, model_target, save_model
from tests.datagen.adapters.exports.test_deepspec import row_ids
from tests.oracle.automodel_cache import StoredTarget, cache_module, precomputed, read_all
from tests.oracle.wheels import is_cached

pytestmark = pytest.mark.skipif(not is_cached("automodel", "0.7.0"), reason="run make oracle")
FC = ("layer2", "layer4", "layer5")
LAYER_IDS = (1, 3, 4)
LENGTHS = (5, 130, 1, 64, 33, 7, 100)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    names = (*FC, "final_normed")
    return make_dataset(
        tmp_path_factory.mktemp("dataset"), names=names, lengths=LENGTHS, target=model_target()
    )


@pytest.fixture(scope="module")
def automodel() -> Iterator[Any]:
    with cache_module() as module:
        yield module


@pytest.mark.parametrize(
    ("draft_size", "top_k", "length"),
    [(50, None, None), (None, None, None), (50, 8, None), (50, None, 40), (50, 50, 128)],
)
def test_its_dataset_gives_what_its_precompute_makes_of_the_same_states(
    automodel: Any,
    dataset: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    draft_size: int | None,
    top_k: int | None,
    length: int | None,
) -> None:
    monkeypatch.setattr("datagen.adapters.exports.automodel.SHARD_SAMPLES", 3)
    asked = Asked(
        dataset,
        "automodel",
        tmp_path / "out",
        fc=FC,
        target_model=str(model),
        draft_vocab_size=draft_size,
        probs_top_k=top_k,
        sequence_length=length,
    )
    folder = run_export(plan_export(asked), workers=2).path
    manifest = automodel.read_manifest(str(folder))
    assert manifest["mask_reasoning_content"] is manifest["mask_generation_prompt"] is False
    snapshot = open_dataset(dataset).snapshot()
    chosen = torch.tensor(manifest["selected_token_ids"])
    read = read_all(automodel, folder)
    assert len(read) == len(LENGTHS)
    head = load_file(model / "model.safetensors")["lm_head.weight"]
    for got, sample_id in zip(read, row_ids(folder), strict=True):
        sample = snapshot.read(sample_id)
        n_tokens = min(sample.n_tokens, manifest["seq_length"])
        expected = _its_own(sample, manifest, head, chosen)
        if "target_probs" not in expected:
            pieces = expected.pop("target_probs_values"), expected.pop("target_probs_indices")
            expected["target_probs"] = automodel.reconstruct_target_probs(*pieces, len(chosen))
        assert got.keys() == expected.keys() == set(automodel.CACHE_KEYS)
        for name, value in expected.items():
            assert got[name].dtype == value.dtype, name
            assert got[name].shape == value[0].shape, name
            # Of equal probabilities, as in padding, nobody promises which ones are kept.
            end = n_tokens - 1 if name == "target_probs" and top_k == 8 else None
            assert torch.equal(got[name][:end], value[0][:end]), name


def test_its_loader_makes_batches_of_an_export(
    automodel: Any, dataset: str, model: Path, tmp_path: Path
) -> None:
    asked = Asked(dataset, "automodel", tmp_path / "out", fc=FC, target_model=str(model), draft_vocab_size=50)
    folder = str(run_export(plan_export(asked), workers=2).path)
    loader = automodel.build_cached_eagle3_dataloader(cache_dir=folder, batch_size=4, shuffle=False)
    batches = list(loader)
    assert [len(batch["input_ids"]) for batch in batches] == [4, 3]
    assert set(batches[0]) == set(automodel.CACHE_KEYS)
    weight = automodel.read_target_embeddings(folder)
    table = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(weight, table.float())


def test_a_whole_model_run_by_its_own_wrapper_makes_what_was_exported(
    automodel: Any, model: Path, tmp_path: Path
) -> None:
    """Its target runs over the tokens that the states are of: norm, lm_head and shift are its own."""
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
    schema = Schema.declare(model_target(), (*FC, "final_normed"), "bfloat16")
    samples = [_captured(target, random_sample(schema, 70, seed)) for seed in range(3)]
    door = LocalDoor(tmp_path)
    dataset = Dataset.create(door, "states", schema, exist_ok=False)
    with PartWriter(door, "states", schema, "run") as writer:
        for sample in samples:
            writer.add(sample)
        dataset.commit([writer.close()], [], run_id="run")
    asked = Asked(
        f"{tmp_path}/states",
        "automodel",
        tmp_path / "out",
        fc=FC,
        target_model=str(model),
        draft_vocab_size=50,
    )
    folder = run_export(plan_export(asked), workers=1).path
    chosen = torch.tensor(automodel.read_manifest(str(folder))["selected_token_ids"])
    by_id = {sample.sample_id: sample for sample in samples}
    for got, sample_id in zip(read_all(automodel, folder), row_ids(folder), strict=True):
        tokens = by_id[sample_id].tokens
        batch = {
            name: torch.from_numpy(tokens[name].astype(np.int64)).unsqueeze(0)
            for name in ("input_ids", "loss_mask")
        }
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        expected = precomputed(target, LAYER_IDS, batch, chosen, torch.bfloat16, 0)
        for name, value in expected.items():
            assert torch.equal(got[name], value[0]), name


def test_what_its_own_writer_makes_comes_in(
    automodel: Any, dataset: str, model: Path, tmp_path: Path
) -> None:
    asked = Asked(dataset, "automodel", tmp_path / "out", fc=FC, target_model=str(model), draft_vocab_size=50)
    folder = run_export(plan_export(asked), workers=1).path
    manifest = automodel.read_manifest(str(folder))
    head = load_file(model / "model.safetensors")["lm_head.weight"]
    snapshot, chosen = open_dataset(dataset).snapshot(), torch.tensor(manifest["selected_token_ids"])
    samples = [snapshot.read(sample_id) for sample_id in row_ids(folder)]
    theirs = str(tmp_path / "theirs")
    made = [_its_own(sample, manifest, head, chosen) for sample in samples]
    for shard, first in enumerate(range(0, len(made), 3)):
        stacked = {name: torch.cat([one[name] for one in made[first : first + 3]]) for name in made[0]}
        automodel.write_shard(theirs, shard, stacked)
    fields = {name: value for name, value in manifest.items() if name != "format_version"}
    automodel.write_manifest(theirs, fields | {"shard_size": 3})
    files = AutomodelFiles().open([Path(theirs)], ImportOptions(model_target(), first_token=7))
    assert [problem.kind for problem in files.problems] == ["lost"]
    assert files.claimed == FC
    for listed, sample in zip(files.samples, samples, strict=True):
        row = files.read(listed)
        assert row.token_ids.tolist() == [7, *sample.tokens["input_ids"][1:].tolist()]
        assert row.loss_mask is not None
        assert row.loss_mask.tolist() == [0, *sample.tokens["loss_mask"][1:].tolist()]
        for slot, name in zip(row.slots, FC, strict=True):
            assert slot.rows.tobytes() == sample.tensors[name].tobytes()


def _captured(model: Any, sample: SampleData) -> SampleData:
    """Return a sample with the model's own states of its tokens."""
    ids = torch.from_numpy(sample.tokens["input_ids"].astype(np.int64)).unsqueeze(0)
    with torch.no_grad():
        hidden = model(ids, output_hidden_states=True).hidden_states
    places = {**{name: number + 1 for name, number in zip(FC, LAYER_IDS, strict=True)}, "final_normed": -1}
    tensors = {name: array_of(hidden[place][0]) for name, place in places.items()}
    norms = {name: row_norms(rows.astype(np.float32)) for name, rows in tensors.items()}
    return replace(sample, tensors=tensors, norms=norms)


def _its_own(sample: Sample, manifest: dict[str, Any], head: Tensor, chosen: Tensor) -> dict[str, Tensor]:
    """Return what Automodel caches of one sample, padded as its own tokenising pads it, with zeros."""
    length = manifest["seq_length"]
    n_tokens = min(sample.n_tokens, length)
    batch = {
        "input_ids": _padded(torch.from_numpy(sample.tokens["input_ids"].astype(np.int64)), length),
        "loss_mask": _padded(torch.from_numpy(sample.tokens["loss_mask"].astype(np.int64)), length),
        "attention_mask": _padded(torch.ones(n_tokens, dtype=torch.int64), length),
    }
    layers = {
        number: _padded(_torch(sample.tensors[name]), length)
        for number, name in zip(LAYER_IDS, FC, strict=True)
    }
    logits = _padded(_torch(sample.tensors["final_normed"])[:n_tokens] @ head.T, length)
    assert logits.shape == (1, length, VOCAB)
    target = StoredTarget(layers, N_LAYERS, logits)
    return precomputed(target, LAYER_IDS, batch, chosen, torch.bfloat16, manifest["target_probs_topk"])


def _padded(rows: Tensor, length: int) -> Tensor:
    padding = torch.zeros((max(length - len(rows), 0), *rows.shape[1:]), dtype=rows.dtype)
    return torch.cat([rows[:length], padding]).unsqueeze(0)


def _torch(states: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(states.view(np.int16).copy()).view(torch.bfloat16)
