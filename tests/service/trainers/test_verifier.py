"""The model that a trainer takes head and norm from is the target: by its sizes, and by its weights."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from datagen.engines.weights import weights_digest
from schemas.target import Target, WeightsDigest
from service.trainers import launching
from service.trainers.errors import TrainerError
from service.trainers.launching import Asked, Launch, plan_speculators
from service.trainers.speculators_arguments import Settings
from service.trainers.verifier import FLAG, shape_problems, weights_problems
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import make_dataset
from tests.service.trainers.hub import MODEL, Hub, serving_hub

SIZES = SimpleNamespace(num_hidden_layers=8, hidden_size=8, vocab_size=1000)


def model(folder: Path, norm: float) -> Path:
    folder.mkdir()
    save_file({"model.norm.weight": np.full(8, norm, np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Return a target whose weights lie in `target`, those of another model in `other`."""
    model(tmp_path / "other", 3.0)
    digest = weights_digest(model(tmp_path / "target", 1.0))
    assert isinstance(digest, WeightsDigest)
    return tiny_target(n_layers=8).model_copy(update={"weights": digest})


def test_another_model_is_told_by_its_sizes() -> None:
    target = tiny_target(n_layers=8)
    assert not list(shape_problems(target, SIZES))
    other = SimpleNamespace(num_hidden_layers=8, hidden_size=16, vocab_size=1001)
    assert [problem.message for problem in shape_problems(target, other)] == [
        "expected hidden_size 8, as tiny has, got 16",
        "expected vocab_size 1000, as tiny has, got 1001",
    ]


def test_another_model_of_the_same_sizes_is_told_by_its_weights(tmp_path: Path, target: Target) -> None:
    assert not list(weights_problems(target, str(tmp_path / "target")))
    (problem,) = weights_problems(target, str(tmp_path / "other"))
    assert (problem.where, problem.kind, problem.severity) == (FLAG, "weights", "error")
    assert f"expected the weights of tiny ({target.weights.sha256[:12]})" in problem.message


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_hub(tmp_path / "cache", monkeypatch) as hub:
        yield hub


def repository(folder: Path) -> dict[str, bytes]:
    return {"config.json": b"{}", "model.safetensors": (folder / "model.safetensors").read_bytes()}


@pytest.mark.parametrize("method", ["sampled_safetensors", "hub_file_hashes"])
def test_a_hub_id_in_the_cache_is_compared_as_a_folder_is(
    tmp_path: Path, target: Target, hub: Hub, method: str
) -> None:
    """Wherever the states' target lay, in a folder that was copied by hand, or in the hub's cache, too."""
    hub.commits(1, repository(tmp_path / "target"))
    commit = hub.fetched("config.json", "model.safetensors")
    (snapshot,) = (tmp_path / "cache").glob("models--owner--name/snapshots/*")
    assert snapshot.name == commit
    if method == "hub_file_hashes":
        digest = weights_digest(snapshot)
        assert isinstance(digest, WeightsDigest)
        target = target.model_copy(update={"weights": digest})
    assert target.weights.method == method
    assert not list(weights_problems(target, MODEL))
    # The branch went on to other weights: of the two in the cache, that is what is trained with.
    hub.commits(2, repository(tmp_path / "other"))
    hub.fetched("config.json", "model.safetensors")
    (problem,) = weights_problems(target, MODEL)
    assert (problem.where, problem.kind, problem.severity) == (FLAG, "weights", "error")
    assert f"snapshots/{hub.commit}" in problem.message


def test_what_the_cache_has_not_yet_is_not_held_against_a_hub_id(
    tmp_path: Path, target: Target, hub: Hub
) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    weights = repository(tmp_path / "other")["model.safetensors"]
    name, map_name = "model-1.safetensors", "model.safetensors.index.json"
    hub.commits(1, {"config.json": b"{}", name: weights, map_name: index})
    commit = hub.fetched("config.json")
    (note,) = weights_problems(target, MODEL)
    assert (note.severity, "expected *.safetensors files, got none" in note.message) == ("note", True)
    hub.fetched(name, map_name)
    (note,) = weights_problems(target, MODEL)
    assert (note.severity, "without 1 of its files (model-2.safetensors" in note.message) == ("note", True)
    # The commit that the states are of needs no comparison.
    named = target.model_copy(update={"model_id": MODEL, "revision": commit})
    assert not list(weights_problems(named, MODEL))


def test_what_cannot_be_compared_is_said(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    cases = {
        "owner/name": "owner/name, neither a folder nor in the hub's cache",
        "a/b/c": "a/b/c, neither a folder nor in the hub's cache",
        str(tmp_path / "empty"): "expected *.safetensors files, got none",
    }
    for name, told in cases.items():
        (note,) = weights_problems(target, name)
        assert note.severity == "note"
        assert "weights were not compared" in note.message
        assert told in note.message
    (note,) = weights_problems(tiny_target(), str(tmp_path / "target"))
    assert (note.severity, "(sampled_safetensors, not synthetic)" in note.message) == ("note", True)


def planned(
    source: str,
    folder: Path,
    verifier: str,
    monkeypatch: pytest.MonkeyPatch,
    shape: Callable[[], object] = lambda: SIZES,
) -> Launch:
    """Plan with a trainer that reads nothing but the model's name."""

    class Trainer:
        def read(self, _words: Sequence[str]) -> Settings:
            values: dict[str, Any] = {
                "speculator_type": "eagle3",
                "verifier_name_or_path": verifier,
                "hidden_states_dtype": "bfloat16",
                "total_seq_len": 8,
                "target_layer_ids": None,
                "train_data_ratio": 0.9,
            }
            return Settings(values, frozenset({"verifier_name_or_path"}))

        def shape(self, _values: object) -> object:
            return shape()

        def main(self, _words: Sequence[str]) -> None:
            raise AssertionError("nothing is trained")

    monkeypatch.setattr(launching, "_Speculators", Trainer)
    return plan_speculators(Asked(source, folder), [])


def test_a_launch_with_another_models_weights_is_refused_before_anything_is_prepared(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_dataset(tmp_path / "root", target=target)
    folder = tmp_path / "p"
    with pytest.raises(TrainerError, match=f"{FLAG}: expected the weights of tiny"):
        planned(source, folder, str(tmp_path / "other"), monkeypatch)
    assert not folder.exists()
    assert FLAG not in {
        note.where for note in planned(source, folder, str(tmp_path / "target"), monkeypatch).notes
    }
    hub = planned(source, folder, "owner/name", monkeypatch)
    assert [note.kind for note in hub.notes if note.where == FLAG] == ["weights"]


def test_a_hub_id_is_compared_as_the_commit_that_its_config_came_of(
    tmp_path: Path, target: Target, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_dataset(tmp_path / "root", target=target)
    hub.commits(1, repository(tmp_path / "other"))
    hub.fetched("config.json", "model.safetensors")

    def shape() -> object:
        hub.commits(2, repository(tmp_path / "target"))
        hub.fetched("config.json", "model.safetensors")
        return SIZES

    notes = planned(source, tmp_path / "p", MODEL, monkeypatch, shape).notes
    assert FLAG not in {note.where for note in notes}
