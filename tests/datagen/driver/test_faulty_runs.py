"""Whole runs, through Ray, with an engine that does one thing wrong: only what is good is committed."""

import json
from pathlib import Path

import numpy as np
import pytest

from datagen.driver.driver import run
from datagen.engines.opening import open_engine
from datagen.errors import RunFailedError
from datagen.store.dataset import Dataset, Snapshot
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.datagen.driver.faulty_worker import (
    FAULTY_LENGTH,
    DyingWorker,
    LaterMixingWorker,
    MixingWorker,
    SwappingWorker,
)
from tests.datagen.prompt_builders import BEGINNING
from tests.datagen.run_builders import VOCABULARY, synthetic_config

LENGTHS = [40, FAULTY_LENGTH, 33, 50, FAULTY_LENGTH, 25]

pytestmark = pytest.mark.usefixtures("cluster")


def write_chats(folder: Path, lengths: list[int]) -> None:
    rng = np.random.default_rng(0)
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as stream:
        for length in lengths:
            rest = rng.integers(0, VOCABULARY, length - len(BEGINNING)).tolist()
            record = {"input_ids": [*BEGINNING, *rest], "loss_mask": [1] * length}
            stream.write(json.dumps(record) + "\n")


def checked(folder: Path) -> Snapshot:
    """Return the version that the run left, every sample compared with the right engine's."""
    dataset = Dataset.open(LocalDoor(folder / "data"), "small")
    # What was under way when a worker died stays until gc collects it: a note.
    assert [problem for problem in verify(dataset).problems if problem.severity == "error"] == []
    snapshot = dataset.snapshot()
    engine = open_engine(synthetic_config(folder).engine, snapshot.schema)
    for sample_id in snapshot.sample_ids:
        sample = snapshot.read(sample_id)
        (expected,) = engine.submit([sample.tokens["input_ids"].tolist()]).result()
        for name in snapshot.schema.names:
            assert sample.tensors[name].tobytes() == expected.tensors[name].tobytes()
    return snapshot


def test_swapped_tensors_cost_their_samples_and_the_run_goes_on_or_stops_as_configured(
    tmp_path: Path,
) -> None:
    write_chats(tmp_path, LENGTHS)
    summary = run(synthetic_config(tmp_path), SwappingWorker)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", 4, {"wrong_content": 2})
    snapshot = checked(tmp_path)
    assert len(snapshot) == 4
    for row in snapshot.quarantined():
        assert "layer2: expected the audit set's rows" in row.detail
        assert "they look like `final`" in row.detail
    write_chats(tmp_path, [FAULTY_LENGTH, 30])
    other = synthetic_config(tmp_path, output__dataset="other", workers__max_refused=0)
    with pytest.raises(RunFailedError, match=r"more than workers.max_refused = 0 samples were refused"):
        run(other, SwappingWorker)
    kept = Dataset.open(LocalDoor(tmp_path / "data"), "other").snapshot()
    assert [len(kept), [row.reason for row in kept.quarantined()]] == [1, ["wrong_content"]]


def test_another_requests_states_cost_their_part_and_a_mended_engine_makes_it(tmp_path: Path) -> None:
    write_chats(tmp_path, LENGTHS)
    config = synthetic_config(tmp_path, workers__max_refused=3)
    with pytest.raises(RunFailedError, match="the audit set does not hold\\n  embed: "):
        run(config, MixingWorker)
    assert Dataset.open(LocalDoor(tmp_path / "data"), "small.audit").latest() is None
    with pytest.raises(RunFailedError, match="unit 0 is wrong as a whole, and its 6 samples") as caught:
        run(config, LaterMixingWorker)
    assert [problem.where for problem in caught.value.problems] == ["embed", "layer2", "final"]
    assert Dataset.open(LocalDoor(tmp_path / "data"), "small").latest() is None
    assert not list((tmp_path / "data" / "small" / "parts").glob("*/part.json"))
    summary = run(config)
    assert (summary.n_samples, summary.quarantined) == (6, {})
    assert len(checked(tmp_path)) == 6


def test_an_engine_that_dies_costs_the_samples_it_dies_of(tmp_path: Path) -> None:
    write_chats(tmp_path, [40, FAULTY_LENGTH, 33])
    summary = run(synthetic_config(tmp_path, workers__unit_attempts=1), DyingWorker)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", 2, {"poison": 1})
    assert len(checked(tmp_path)) == 2
