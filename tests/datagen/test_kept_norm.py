"""A dataset keeps its target's norm: by the run that makes it, or by `strata norm` afterwards."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from datagen.adapters.exports.format import Row, Source
from datagen.commands.norm import command
from datagen.engines.final_norm import model_final_norm
from datagen.engines.opening import read_target
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.kept_norm import keep_norm_of_model, keep_norm_of_run, norm_of
from datagen.store.dataset import Dataset
from datagen.store.final_norm import apply_norm
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from schemas.schema import Schema
from schemas.wiring import TargetRole, Wiring
from tests.builders import random_sample, tiny_target
from tests.datagen.engines import tiny_models

WIRING = Wiring(
    consumer="mine",
    kind="trainer",
    n_layers=2,
    fc=("layer1",),
    target=TargetRole(tensor="final_normed", applies_norm=False),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_models.save("llama", tmp_path_factory.mktemp("models") / "llama")


def make(root: Path, model: Path, names: tuple[str, ...] = ("layer1", "final")) -> Dataset:
    schema = Schema.declare(read_target(EngineSettings(model=str(model))), names, "bfloat16")
    door = LocalDoor(root)
    dataset = Dataset.create(door, "states", schema, exist_ok=True)
    with PartWriter(door, "states", schema, "run") as writer:
        writer.add(random_sample(schema, 70, 1))
        dataset.commit([writer.close()], [], run_id="run")
    return dataset


def test_an_export_reads_what_is_made_of_final(tmp_path: Path, model: Path) -> None:
    dataset = make(tmp_path, model)
    snapshot = dataset.snapshot()
    assert norm_of(snapshot, None) is None
    norm = norm_of(snapshot, str(model))
    assert norm == model_final_norm(str(model))
    rows = tuple(Row(number, location) for number, location in enumerate(snapshot.index))
    source = Source(snapshot, WIRING, norm, rows)
    assert source.derived == ("final_normed",)
    assert source.spec("final_normed").dtype == "bfloat16"
    final = source.tensor(rows[0], "final", 3, 67)
    made = source.tensor(rows[0], "final_normed", 3, 67)
    assert made.dtype == final.dtype
    assert made.tobytes() == apply_norm(norm, final, "bfloat16").tobytes() != final.tobytes()
    assert Source(snapshot, WIRING, None, rows).derived == ()


def test_a_model_whose_norm_is_not_the_kept_one_is_refused(tmp_path: Path, model: Path) -> None:
    dataset = make(tmp_path, model)
    kept, _ = keep_norm_of_model(dataset, dataset.snapshot().schema, str(model))
    assert norm_of(dataset.snapshot(), str(model)) == kept
    other = Path(shutil.copytree(model, tmp_path / "other"))
    (weights,) = other.glob("*.safetensors")
    tensors = load_file(weights)
    tensors["model.norm.weight"] *= 3
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match="expected the weights that the states were made with"):
        norm_of(dataset.snapshot(), str(other))
    config = json.loads((other / "config.json").read_text())
    shutil.copy(next(model.glob("*.safetensors")), weights)
    (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    with pytest.raises(ConfigError, match="expected the norm that the dataset keeps"):
        norm_of(dataset.snapshot(), str(other))


def test_the_command_keeps_it_once(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = make(tmp_path, model)
    asked = ["--dataset", f"{tmp_path}/states", "--target-model", str(model)]
    assert command(asked) == 0
    assert "final_normed can be asked for" in capsys.readouterr().out
    assert command([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["is_new"], said["derivable"]) == (False, ["final_normed"])
    assert dataset.snapshot().final_norm() == model_final_norm(str(model))


def test_another_model_is_refused(tmp_path: Path, model: Path) -> None:
    torch.manual_seed(1)
    other = tiny_models.save("qwen3", tmp_path / "other")
    make(tmp_path, model)
    with pytest.raises(ConfigError, match=r"final_norm.weights: expected the weights"):
        command(["--dataset", f"{tmp_path}/states", "--target-model", str(other)])


def test_a_dataset_without_final_has_nothing_to_norm(tmp_path: Path, model: Path) -> None:
    make(tmp_path, model, ("layer1",))
    with pytest.raises(ConfigError, match="expected a dataset with final, got one of layer1"):
        command(["--dataset", f"{tmp_path}/states", "--target-model", str(model)])


def test_a_run_keeps_it_where_the_models_files_can_be_read(tmp_path: Path, model: Path) -> None:
    dataset = make(tmp_path, model)
    schema = dataset.snapshot().schema
    said = keep_norm_of_run(dataset, schema, EngineSettings(model=str(model)))
    assert said == "kept: rms_norm, eps 1e-5" or said.startswith("kept: rms_norm")
    assert dataset.snapshot().final_norm() is not None
    assert "not kept" in keep_norm_of_run(dataset, schema, EngineSettings(name="synthetic"))
    bare = Schema.declare(tiny_target(), ("layer1",), "bfloat16")
    assert "no final" in keep_norm_of_run(dataset, bare, EngineSettings(model=str(model)))


def test_the_norm_of_a_real_capture_is_the_models_own(model: Path) -> None:
    norm = model_final_norm(str(model))
    rows = np.ones((2, norm.hidden_size), np.float32)
    assert np.isfinite(apply_norm(norm, rows, "float32")).all()
