"""Whole runs with real Ray actors, the synthetic engine and a folder."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from datagen.driver.driver import open_job, run
from datagen.engines.opening import open_engine
from datagen.errors import ConfigError, FleetError, ResumeError, RunFailedError, SpaceError
from datagen.planning.audit import read_audit
from datagen.planning.plan import predict
from datagen.planning.preparation import prepare
from datagen.store.dataset import Dataset, Snapshot
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from datagen.worker.actor import Worker
from schemas.errors import StrataError
from tests.datagen.driver.deadly_worker import (
    DEADLY_LENGTH,
    BrokenWorker,
    DeadlyWorker,
    OnceBrokenWorker,
    RaisingWorker,
)
from tests.datagen.run_builders import synthetic_config, write_prompts

LENGTHS = [5, 64, 65, 130, 33, 12, 200, 90, 1, 40]

pytestmark = pytest.mark.usefixtures("cluster")


def snapshot_of(folder: Path, name: str = "small") -> Snapshot:
    return Dataset.open(LocalDoor(folder / "data"), name).snapshot()


def assert_whole(folder: Path, name: str = "small") -> None:
    report = verify(Dataset.open(LocalDoor(folder / "data"), name))
    assert report.problems == []


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_run_makes_every_prompt_once_and_verifies(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    config = synthetic_config(tmp_path, workers__count=2)
    summary = run(config)
    assert (summary.outcome, summary.n_samples, summary.version) == ("complete", len(LENGTHS), 1)
    assert summary.n_tokens == sum(LENGTHS)
    assert_whole(tmp_path)
    assert_whole(tmp_path, "small.audit")
    snapshot = snapshot_of(tmp_path)
    engine = open_engine(config.engine, snapshot.schema)
    prompts = {prompt.sample_id: prompt for prompt in prepare(config, "run").prompts}
    assert set(snapshot.sample_ids) == set(prompts)
    for sample_id, prompt in prompts.items():
        sample = snapshot.read(sample_id)
        (expected,) = engine.submit([prompt.input_ids.tolist()]).result()
        assert np.array_equal(sample.tokens["input_ids"], prompt.input_ids)
        assert np.array_equal(sample.tokens["loss_mask"], prompt.loss_mask)
        for name in snapshot.schema.names:
            assert sample.tensors[name].tobytes() == expected.tensors[name].tobytes()


def test_run_again_it_finds_nothing_to_do_and_new_prompts_are_added(tmp_path: Path) -> None:
    file = write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    config = synthetic_config(tmp_path)
    run(config)
    before = {path: path.stat().st_mtime_ns for path in files_under(tmp_path / "data")}
    again = run(config)
    assert (again.n_samples, again.already_made, again.version) == (0, len(LENGTHS), 1)
    assert {path: path.stat().st_mtime_ns for path in files_under(tmp_path / "data")} == before
    old = file.read_text()
    write_prompts(file, [44, 55], seed=1)
    file.write_text(old + file.read_text())
    more = run(config)
    assert (more.n_samples, more.already_made, more.version) == (2, len(LENGTHS), 2)
    assert len(snapshot_of(tmp_path)) == len(LENGTHS) + 2
    assert_whole(tmp_path)


def test_the_audit_set_has_every_boundary_and_the_targets_choice(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    run(synthetic_config(tmp_path))
    snapshot = snapshot_of(tmp_path, "small.audit")
    assert snapshot.schema.names == ("embed", "layer1", "layer2", "layer3", "final", "final_normed")
    reading = read_audit(snapshot)
    assert reading.n_samples == 2
    assert reading.n_tokens <= 32
    assert set(reading.profiles) == set(snapshot.schema.names)
    sample = snapshot.read(snapshot.sample_ids[0])
    assert sample.tokens["target_argmax"].dtype == np.int32


def test_what_cannot_become_a_sample_is_recorded_with_its_reason(tmp_path: Path) -> None:
    file = write_prompts(tmp_path / "prompts.jsonl", [10, 20, 300])
    records = [
        "{torn",
        json.dumps({"input_ids": [], "loss_mask": []}),
        json.dumps({"input_ids": [1, 5000], "loss_mask": [1, 1]}),
        json.dumps({"input_ids": [1, 2, 3], "loss_mask": [0, 0, 0]}),
    ]
    file.write_text(file.read_text() + "\n".join(records) + "\n")
    config = synthetic_config(tmp_path, prompts__max_tokens=100, prompts__on_too_long="quarantine")
    summary = run(config)
    assert summary.n_samples == 2
    assert summary.quarantined == {
        "unreadable_record": 1,
        "empty": 1,
        "token_out_of_vocabulary": 1,
        "too_few_trained_tokens": 1,
        "too_long": 1,
    }
    rows = snapshot_of(tmp_path).quarantined()
    assert sorted(row.source.rsplit(":", 1)[1] for row in rows) == ["3", "4", "5", "6", "7"]
    assert run(config).n_quarantined == 0  # known already: recorded once
    assert_whole(tmp_path)


def test_a_sample_that_kills_its_workers_is_found_and_given_up(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", [*LENGTHS, DEADLY_LENGTH])
    summary = run(synthetic_config(tmp_path, workers__count=2), DeadlyWorker)
    assert summary.quarantined == {"poison": 1}
    assert summary.n_samples == len(LENGTHS)
    (row,) = snapshot_of(tmp_path).quarantined()
    assert row.source == f"prompts.jsonl:{len(LENGTHS) + 1}"
    assert "killed 3 workers" in row.detail
    # A part may be left that was closed as its worker died: a note, and no version names it.
    assert verify(Dataset.open(LocalDoor(tmp_path / "data"), "small")).errors == []


def test_a_worker_that_raises_what_no_one_foresaw_loses_one_sample_and_says_why(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", [DEADLY_LENGTH, 10, 20])
    summary = run(synthetic_config(tmp_path), RaisingWorker)
    assert (summary.n_samples, summary.quarantined) == (2, {"poison": 1})
    (row,) = snapshot_of(tmp_path).quarantined()
    assert row.detail.startswith("failed 3 times on 1 worker: last error: a worker failed")
    assert "ZeroDivisionError: no one foresaw this" in row.detail


def test_an_engine_that_broke_in_a_living_process_is_started_anew_and_blamed_on_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prompts(tmp_path / "prompts.jsonl", list(range(20, 60)))
    config = synthetic_config(tmp_path, workers__count=2, parts__max_samples=8, audit__samples=0)
    summary = run(config, OnceBrokenWorker)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", 40, {})
    assert "is started anew, it makes nothing: a worker failed" in capsys.readouterr().err
    # The trials leave nothing behind.
    assert verify(Dataset.open(LocalDoor(tmp_path / "data"), "small")).problems == []


def test_engines_that_make_nothing_stop_the_run_and_poison_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datagen.driver.replica.FAILED_TRIALS", 1)  # starting it anew takes seconds
    write_prompts(tmp_path / "prompts.jsonl", [20, 30])
    config = synthetic_config(tmp_path, audit__samples=0, workers__unit_attempts=1)
    with pytest.raises(RunFailedError, match="makes nothing, also when it was started anew") as caught:
        run(config, BrokenWorker)
    assert "CUDA error" in str(caught.value)
    assert Dataset.open(LocalDoor(tmp_path / "data"), "small").latest() is None
    assert len(open_job(config).todo) == 2


def test_the_prediction_is_within_a_hundredth_of_what_is_written(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", [150 + 7 * n for n in range(60)])
    config = synthetic_config(tmp_path, engine__synthetic__hidden_size=512, audit__samples=4)
    prepared = prepare(config, "run")
    predicted = predict(config, prepared.schema, prepared.prompts)
    run(config)
    files = files_under(tmp_path / "data")
    written = sum(path.stat().st_size for path in files)
    assert abs(predicted.total_bytes - written) <= 0.01 * written
    assert predicted.n_files == len(files)


def _prompts(folder: Path) -> None:
    write_prompts(folder / "prompts.jsonl", LENGTHS)


@pytest.mark.parametrize(
    ("changes", "expected", "told"),
    [
        ({"prompts__path": "missing.jsonl"}, ConfigError, ["missing.jsonl"]),
        (
            {"engine__name": "hf", "engine__model": "missing-model", "prompts__path": "missing.jsonl"},
            ConfigError,
            ["missing-model", "missing.jsonl"],
        ),
        ({"tensors__names": "embed,layer9,layer2x"}, ConfigError, ["layer9", "layer2x"]),
        ({"output__root": "ftp://host/data"}, ConfigError, ["expected a folder, file:///, s3://"]),
        ({"workers__count": 9, "workers__cpus": 5}, FleetError, ["workers.cpus", "expected 9 x 5 CPUs"]),
    ],
    ids=["prompts", "model and prompts", "tensors", "root", "no room"],
)
def test_what_cannot_start_says_all_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, object], expected: type[StrataError], told: list[str]
) -> None:
    _prompts(tmp_path)
    with pytest.raises(expected) as caught:
        run(synthetic_config(tmp_path, **changes))
    assert caught.value.exit_code == 2
    for words in told:
        assert words in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_disk_that_is_too_small_is_told_before_a_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prompts(tmp_path)
    monkeypatch.setattr(LocalDoor, "free_bytes", lambda self: 1000)
    with pytest.raises(SpaceError, match="free bytes, got 1,000") as caught:
        run(synthetic_config(tmp_path))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "data").exists()


def test_a_dataset_made_otherwise_is_refused_with_every_difference(tmp_path: Path) -> None:
    _prompts(tmp_path)
    run(synthetic_config(tmp_path))
    before = sorted(files_under(tmp_path / "data"))
    changes = {"tensors__names": "embed,layer3", "engine__synthetic__seed": 5, "prompts__max_tokens": 64}
    with pytest.raises(ResumeError) as caught:
        run(synthetic_config(tmp_path, **changes))
    where = {problem.where for problem in caught.value.problems}
    assert {
        "schema.tensors.layer2",
        "schema.tensors.layer3",
        "schema.target.weights.sha256",
        "max_tokens",
    } <= where
    assert caught.value.exit_code == 2
    assert sorted(files_under(tmp_path / "data")) == before


def test_nothing_is_added_to_a_damaged_dataset(tmp_path: Path) -> None:
    _prompts(tmp_path)
    run(synthetic_config(tmp_path))
    version = tmp_path / "data" / "small" / "versions" / "00000001.json"
    version.write_bytes(version.read_bytes().replace(b'"n_samples":10', b'"n_samples":11'))
    with pytest.raises(ResumeError, match="small is damaged: nothing is added to it") as caught:
        run(synthetic_config(tmp_path))
    assert caught.value.exit_code == 2
    assert "versions/00000001.json" in str(caught.value)


class LyingWorker(Worker):
    """Says that other software runs here than there does."""

    def describe(self):  # type: ignore[no-untyped-def]
        facts = super().describe()
        object.__setattr__(facts.engine, "version", "another one")
        return facts


def test_workers_with_other_software_are_refused(tmp_path: Path) -> None:
    _prompts(tmp_path)
    with pytest.raises(FleetError, match="got another one"):
        run(synthetic_config(tmp_path), LyingWorker)
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_that_is_not_writable_is_named(tmp_path: Path) -> None:
    _prompts(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StrataError) as caught:
        run(synthetic_config(tmp_path))
    assert caught.value.exit_code == 2
    assert files_under(tmp_path / "data") == []
