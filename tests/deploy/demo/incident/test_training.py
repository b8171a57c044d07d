"""A training run without its trainer: its words, its end, and that a failed one leaves nothing."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from deploy.demo.incident import cpu_trainer, environment, training
from deploy.demo.incident.training import Course, train, train_both
from deploy.demo.registry import DemoError

TRAINER = """
import json, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
place = pathlib.Path(words["--save-path"])
epochs = int(words["--epochs"])
for epoch in range(epochs):
    (place / str(epoch)).mkdir()
    metrics = {"full_acc_0_epoch": 0.1 * (epoch + 1)}
    (place / str(epoch) / "val_metrics.json").write_text(json.dumps(metrics))
(place / "words.json").write_text(json.dumps(sys.argv[1:]))
print("global_step=7")
if "fail" in words["--data-path"]:
    sys.exit("no such thing")
"""


@pytest.fixture(autouse=True)
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "trainer.py"
    launcher.write_text(TRAINER)
    monkeypatch.setattr(training, "LAUNCHER", launcher)
    monkeypatch.setattr(training, "make_environment", lambda: tmp_path)


def test_the_last_epochs_draft_is_returned_with_what_its_trainer_reported(tmp_path: Path) -> None:
    course = Course(steps=9, train_ratio=0.8, epochs=2, steps_deep=1)
    trained = train(tmp_path / "data", tmp_path / "draft", course, tmp_path)
    assert trained.folder == tmp_path / "draft" / "1"
    assert trained.reported == pytest.approx(0.2)
    words = json.loads((tmp_path / "draft" / "words.json").read_text())
    given = dict(zip(words[::2], words[1::2], strict=False))
    assert given["--max-steps"] == "9"
    assert given["--ttt-steps"] == "1"
    assert given["--train-data-ratio"] == "0.8"
    assert given["--on-missing"] == "raise"
    assert words[words.index("--target-layer-ids") + 1 :] == ["2", "15", "27"]
    (tmp_path / "trainer.py").unlink()
    assert train(tmp_path / "data", tmp_path / "draft", course, tmp_path) == trained


def test_a_run_that_fails_leaves_nothing_and_shows_its_end(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="no such thing"):
        train(tmp_path / "fail", tmp_path / "draft", Course(steps=9, train_ratio=0.8), tmp_path)
    assert not (tmp_path / "draft").exists()
    assert not list(tmp_path.glob(".draft.partial"))


def test_both_drafts_are_trained_each_on_its_own(tmp_path: Path) -> None:
    data = {"right": tmp_path / "right", "as then": tmp_path / "as-then"}
    drafts = train_both(data, tmp_path / "made", Course(steps=64, train_ratio=0.8))
    assert {name: draft.folder.parent.name for name, draft in drafts.items()} == {
        "right": "draft-right-64-steps",
        "as then": "draft-as-then-64-steps",
    }
    for name, draft in drafts.items():
        words = json.loads((draft.folder.parent / "words.json").read_text())
        assert words[words.index("--data-path") + 1] == str(data[name])


def test_the_trainer_is_told_that_there_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer:
        device_type = "cuda"

    trainer: Any = ModuleType("speculators.train.trainer")
    trainer.get_local_rank = lambda: 0
    trainer.Trainer = Trainer
    config: Any = ModuleType("speculators.train.config")
    config.TrainConfig = SimpleNamespace(resolve=lambda words: ("resolved", words))
    command: Any = ModuleType("speculators.train.cli")
    ran: list[Any] = []
    command.main = ran.append
    for module in (trainer, config, command):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for parent in ("speculators", "speculators.train"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monkeypatch.setattr(torch.accelerator, "synchronize", torch.accelerator.synchronize)
    cpu_trainer.train(["--epochs", "1"])
    assert ran == [("resolved", ["--epochs", "1"])]
    assert trainer.get_local_rank() == "cpu"
    assert Trainer().device_type == "cpu"
    torch.accelerator.synchronize()


def test_a_package_index_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path / "speculators")
    failed = subprocess.CompletedProcess([], 1, "", "no matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(DemoError, match="is the package index reachable"):
        environment.make_environment()
    assert not (tmp_path / "speculators").exists()
