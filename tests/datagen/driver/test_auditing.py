"""Audits of a server that cannot give every boundary: what is proven, what is lacking, what is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from datagen.config import RunConfig, load_config
from datagen.driver.auditing import Audited, audit
from datagen.engines.settings import EngineSettings
from datagen.errors import ResumeError, RunFailedError
from datagen.planning.audit import read_audit
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from tests.datagen.driver.local_fleet import LocalFleet, Said
from tests.datagen.engines import tiny_models
from tests.datagen.engines.state_server import StateServer
from tests.datagen.run_builders import flags

LENGTHS = (20, 9, 31, 16)
DECLARED = (0, 2, 3)
Serving = Callable[[tuple[int, ...]], StateServer]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save("llama", tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture
def serving(model: Path, tmp_path: Path) -> Iterator[Serving]:
    """Start a server that captures some layers, whatever is declared of it."""
    running: list[StateServer] = []
    (tmp_path / "shared").mkdir()

    def start(ids: tuple[int, ...]) -> StateServer:
        settings = EngineSettings(name="hf", model=str(model), dtype="float32", device="cpu", threads=1)
        running.append(StateServer(settings, tmp_path / "shared", ids))
        return running[-1].__enter__()

    yield start
    for server in running:
        server.__exit__(None, None, None)


def config_of(folder: Path, server: StateServer, **changes: object) -> RunConfig:
    rng = np.random.default_rng(0)
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as stream:
        for length in LENGTHS:
            ids = [5, 6, 7, *rng.integers(0, tiny_models.VOCAB, length - 3).tolist()]
            stream.write(json.dumps({"input_ids": ids, "loss_mask": [1] * length}) + "\n")
    settings: dict[str, object] = {
        "output.root": folder / "data",
        "output.dataset": "served",
        "prompts.path": folder / "prompts.jsonl",
        "prompts.max_tokens": 64,
        "engine.name": "openai",
        "engine.model": server.settings.model,
        "engine.dtype": "float32",
        "engine.openai.base_url": server.base_url,
        "engine.openai.shared_folder": server.shared,
        "engine.openai.layer_ids": json.dumps(DECLARED),
        "engine.openai.backoff_seconds": 0.0,
        "tensors.names": "embed,layer2,final",
        "tensors.dtype": "float32",
        "audit.samples": 2,
        "audit.max_tokens": 16,
    }
    settings.update({name.replace("__", "."): value for name, value in changes.items()})
    return load_config(flags(settings), None, "strata run")


def audited(config: RunConfig, said: Said | None = None) -> tuple[Audited, LocalFleet]:
    fleet = LocalFleet(config)
    reporter: Any = said or Said()
    try:
        return audit(config, fleet.job.prepared, cast(Any, fleet), fleet.job.run_id, reporter), fleet
    finally:
        fleet.close()


def audit_set(folder: Path) -> Dataset:
    return Dataset.open(LocalDoor(folder / "data"), "served.audit")


def test_what_a_server_gives_is_proven_and_what_it_lacks_is_told(serving: Serving, tmp_path: Path) -> None:
    said = Said()
    found, fleet = audited(config_of(tmp_path, serving(DECLARED)), said)
    assert audit_set(tmp_path).snapshot().schema.names == ("embed", "layer2", "final", "final_normed")
    assert read_audit(audit_set(tmp_path).snapshot()).lacking == ("layer1",)
    assert set(fleet.calibration.profiles) == {"embed", "layer2", "final", "final_normed"}
    assert fleet.calibration.prefix is not None
    (record,) = audit_set(tmp_path).calibrations()
    assert record.witness.startswith("transformers ")
    assert [one.name for one in record.tensors] == ["embed", "layer2", "final", "final_normed"]
    # The nearest other place is one that the server does not give.
    assert {one.name: one.nearest for one in record.tensors}["embed"] == "layer1"
    for told in (said.text, found.proven_by):
        assert (
            "without layer1 (expected layers 1 among those that the server captures, got [0, 2, 3])" in told
        )
    assert "against transformers" in found.proven_by


def test_a_wrong_layer_stops_the_run_by_its_name_and_by_what_it_really_is(
    serving: Serving, tmp_path: Path
) -> None:
    """A server that captures another layer than is declared has as many slots, of the same shapes."""
    with pytest.raises(RunFailedError, match="the audit set does not hold") as caught:
        audited(config_of(tmp_path, serving((0, 1, 3))))
    (problem,) = caught.value.problems
    assert problem.where == "layer2"
    assert "it looks like `layer1` (0.00%)" in problem.message
    assert audit_set(tmp_path).latest() is None


def test_a_server_that_captures_other_layers_since_is_refused_by_a_later_run(
    serving: Serving, tmp_path: Path
) -> None:
    audited(config_of(tmp_path, serving(DECLARED)))
    before = audit_set(tmp_path).latest()
    with pytest.raises(RunFailedError, match="does not give what the audit set has") as caught:
        audited(config_of(tmp_path, serving((0, 1, 3))))
    (problem,) = caught.value.problems
    assert problem.where == "layer2"
    assert "it looks like `layer1` (0.00%)" in problem.message
    assert audit_set(tmp_path).latest() == before


def test_a_later_run_holds_its_engine_against_the_set_that_is_there(serving: Serving, tmp_path: Path) -> None:
    audited(config_of(tmp_path, serving(DECLARED)))
    said = Said()
    more = config_of(
        tmp_path, serving((0, 1, 2, 3)), engine__openai__layer_ids="[0, 1, 2, 3]", audit__samples=3
    )
    found, _ = audited(more, said)
    assert "the engine holds against the 2 samples that served.audit had: error by token" in said.text
    assert "1 samples with 4 tensors; without layer1" in found.proven_by
    snapshot = audit_set(tmp_path).snapshot()
    assert (len(snapshot), snapshot.schema.names) == (3, ("embed", "layer2", "final", "final_normed"))


def test_what_the_engine_does_not_give_any_more_is_told(serving: Serving, tmp_path: Path) -> None:
    audited(config_of(tmp_path, serving((0, 1, 2, 3)), engine__openai__layer_ids="[0, 1, 2, 3]"))
    said = Said()
    found, _ = audited(config_of(tmp_path, serving(DECLARED), audit__samples=3), said)
    assert ", without layer1, which the engine does not give: error by token" in found.proven_by
    assert "no sample is added to the audit set: the engine gives 4 tensors; without layer1" in said.text
    assert len(audit_set(tmp_path).snapshot()) == 2


def test_a_set_without_the_runs_own_tensors_is_refused_before_a_model_is_loaded(
    serving: Serving, tmp_path: Path
) -> None:
    server = serving((0, 1, 2, 3))
    audited(config_of(tmp_path, serving(DECLARED)))
    other = config_of(
        tmp_path, server, engine__openai__layer_ids="[0, 1, 2, 3]", tensors__names="layer1,final"
    )
    with pytest.raises(ResumeError, match="expected an audit set with layer1, got one of embed, l"):
        LocalFleet(other)


def test_a_run_without_an_audit_set_says_what_is_not_checked(serving: Serving, tmp_path: Path) -> None:
    said = Said()
    found, _ = audited(config_of(tmp_path, serving((0, 1, 3)), audit__samples=0), said)
    assert found.proven_by.startswith("none (audit.samples = 0): no tensor is held against a witness")
    assert found.proven_by in said.text


def test_a_set_without_a_last_state_is_proven_by_its_witness_alone(serving: Serving, tmp_path: Path) -> None:
    config = config_of(
        tmp_path, serving((0, 1, 2)), engine__openai__layer_ids="[0, 1, 2]", tensors__names="embed,layer2"
    )
    found, fleet = audited(config)
    assert audit_set(tmp_path).snapshot().schema.names == ("embed", "layer1", "layer2")
    (record,) = audit_set(tmp_path).calibrations()
    assert (record.positions, record.agreeing) == (0, 0)
    assert [one.name for one in record.tensors] == ["embed", "layer1", "layer2"]
    assert "the head was not asked: there is no final" in found.proven_by
    assert "by no last states" in found.bound_by
    assert set(fleet.calibration.profiles) == {"embed", "layer1", "layer2"}
