"""Whole runs through Ray whose target is on a server: plan, audit, parts, and a server that breaks."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from datagen.config import RunConfig, load_config
from datagen.driver.driver import run
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError, RunFailedError
from datagen.planning.preparation import prepare
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.contract.engine_contract import token_errors
from tests.datagen.engines import tiny_models
from tests.datagen.engines.state_server import Fault, StateServer
from tests.datagen.run_builders import flags

LENGTHS = (20, 9, 31, 16, 25)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateServer]:
    folder = tmp_path_factory.mktemp("served")
    model = tiny_models.save("llama", folder / "llama")
    (folder / "shared").mkdir()
    settings = EngineSettings(name="hf", model=str(model), dtype="float32", device="cpu")
    with StateServer(settings, folder / "shared", (0, 1, 2, 3)) as server:
        yield server


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
        "engine.openai.layer_ids": json.dumps(server.ids),
        "engine.openai.backoff_seconds": 0.0,
        "tensors.names": "embed,layer2,final",
        "tensors.dtype": "float32",
        "workers.cpus": 0.5,
        "audit.samples": 1,
        "audit.max_tokens": 16,
    }
    settings.update({name.replace("__", "."): value for name, value in changes.items()})
    return load_config(flags(settings), None, "strata run")


@pytest.mark.usefixtures("cluster")
def test_a_run_holds_what_the_model_says_though_its_server_breaks_on_the_way(
    server: StateServer, tmp_path: Path
) -> None:
    server.faults.extend(["429", "drop", "500"])
    summary = run(config_of(tmp_path, server))
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", len(LENGTHS), {})
    dataset = Dataset.open(LocalDoor(tmp_path / "data"), "served")
    assert [problem for problem in verify(dataset).problems if problem.severity == "error"] == []
    snapshot = dataset.snapshot()
    engine = server.engine.handing_out(snapshot.schema)
    for sample_id in snapshot.sample_ids:
        sample = snapshot.read(sample_id)
        (expected,) = engine.submit([sample.tokens["input_ids"].tolist()]).result()
        for name in snapshot.schema.names:
            assert token_errors(sample.tensors[name], expected.tensors[name]).max() < 1e-5
    assert list(server.shared.iterdir()) == []
    (checks,) = dataset.run_checks()
    assert (checks.engine["proven"], checks.engine["unproven"]) == ("embed, final", "layer1, layer2")
    assert checks.engine["embed"] == "the server's slot"
    assert checks.proven_by.startswith("1 samples with every boundary, against transformers ")


@pytest.mark.usefixtures("cluster")
def test_what_a_request_that_was_given_up_left_is_gone_when_the_run_is(
    server: StateServer, tmp_path: Path
) -> None:
    server.faults.clear()
    server.faults.extend([None, "late"])
    config = config_of(tmp_path, server, audit__samples=0, engine__openai__timeout_seconds=2)
    summary = run(config)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", len(LENGTHS), {})
    assert list(server.shared.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_while_the_server_is_away_the_run_waits_and_blames_nobody(
    server: StateServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults.clear()
    config = config_of(
        tmp_path, server, audit__samples=0, engine__openai__retries=0, workers__unit_attempts=1
    )
    # The opening's proof, the five requests of the unit, the trial behind it, and the next opening's proof.
    away: list[Fault] = ["500"] * (len(LENGTHS) + 2)
    server.faults.extend([None, *away])
    summary = run(config)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", len(LENGTHS), {})
    said = capsys.readouterr().err
    assert said.count("its server is away") == said.count("waits to load") == 1
    assert "unit 0" not in said
    assert list(server.shared.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_states_of_other_ids_are_never_committed(server: StateServer, tmp_path: Path) -> None:
    """The server gives one batch's states wrong at every try."""
    server.faults.clear()
    config = config_of(tmp_path, server, audit__samples=0, workers__unit_attempts=1, workers__max_refused=0)
    foreign: list[Fault] = ["foreign"] * 40
    server.faults.extend([None, *foreign])
    with pytest.raises(RunFailedError, match=r"expected the states of the \d+ ids that were asked for"):
        run(config)
    server.faults.clear()
    left = Dataset.open(LocalDoor(tmp_path / "data"), "served").latest()
    assert left is None or left.n_samples == 0


def test_what_is_wrong_with_a_server_is_told_before_a_run(server: StateServer, tmp_path: Path) -> None:
    few = config_of(tmp_path, server, engine__openai__layer_ids="[0, 2, 3]")
    assert prepare(few, "run").audited.lacking == ("layer1",)
    other = config_of(tmp_path, server, engine__openai__layer_ids="[0, 1, 3]")
    with pytest.raises(ConfigError, match="expected layers 2 among those that the server captures"):
        prepare(other, "run")
    gone = config_of(
        tmp_path, server, engine__openai__base_url="http://127.0.0.1:9", engine__openai__retries=0
    )
    with pytest.raises(ConfigError, match="ConnectError") as caught:
        prepare(gone, "run")
    assert caught.value.exit_code == 2
    assert len(caught.value.problems) == 1
    assert "vllm serve" in str(caught.value)
    long = config_of(tmp_path, server, prompts__max_tokens=4096)
    with pytest.raises(ConfigError, match="expected at most the 127 positions"):
        prepare(long, "run")
