"""The words of `strata train-speculators`: its own before `--`, the trainer's behind it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.command import UsageError
from service.commands import train_speculators
from service.commands.train_speculators import command
from service.trainers.errors import TrainerError
from service.trainers.held import open_held
from service.trainers.launching import Asked, Launch
from tests.datagen.adapters.exports.builders import make_dataset
from tests.service.trainers.places import prepared_from

Planned = list[tuple[Asked, list[str]]]
Trained = list[Sequence[str]]


@pytest.fixture
def trained() -> Trained:
    return []


@pytest.fixture
def planned(tmp_path: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """What is planned; the trainer itself is a list of the words that it was run with."""
    held = open_held(make_dataset(tmp_path))
    prepared = prepared_from(held, tmp_path / "p")
    planned: Planned = []

    def plan(asked: Asked, words: list[str]) -> Launch:
        planned.append((asked, words))
        return Launch(held, prepared, (*words, "--whole"), (), trained.append)

    monkeypatch.setattr(train_speculators, "plan_speculators", plan)
    return planned


def test_what_stands_behind_two_dashes_is_the_trainers(
    planned: Planned, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--lr", "1e-3", "--", "--data", "x"]
    assert command(["--data", "d/s@1", "--prepared", "p", "--fc", "layer2, layer5", "--", *words]) == 0
    assert planned == [(Asked("d/s@1", Path("p"), ("layer2", "layer5")), words)]
    assert trained == [(*words, "--whole")]
    said = capsys.readouterr().err
    assert "input layer2, layer4, layer5; target final" in said
    assert "8 for training, then 2 held out" in said
    assert "speculators train --lr 1e-3" in said


def test_a_service_and_splits(planned: Planned, trained: Trained) -> None:
    url = ["--url", "http://127.0.0.1:8350", "--dataset", "demo@3"]
    assert command([*url, "--prepared", "p", "--split", "train,validation", "--prepare-only"]) == 0
    asked = Asked("http://127.0.0.1:8350#demo@3", Path("p"), None, None, ("train", "validation"))
    assert planned == [(asked, [])]
    assert not trained


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--prepared", "p"], "one of the arguments --data --url is required"),
        (["--data", "d/s"], "--prepared"),
        (["--data", "d/s", "--url", "http://h", "--prepared", "p"], "not allowed with"),
        (["--url", "http://h", "--prepared", "p"], "expected --dataset with --url"),
        (["--data", "d/s", "--prepared", "p", "--fc", "layer2,,layer5"], "expected names with a comma"),
        (["--data", "d/s", "--prepared", "p", "--split", ""], "expected names with a comma"),
        (["--data", "d/s", "--prepared", "p", "--lr", "1"], "unrecognized arguments: --lr 1"),
    ],
)
def test_words_that_are_off(planned: Planned, words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        command(words)
    assert not planned


def test_a_refusal_trains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Launch:
        raise TrainerError("not so")

    monkeypatch.setattr(train_speculators, "plan_speculators", refuse)
    with pytest.raises(TrainerError, match="not so"):
        command(["--data", "d/s", "--prepared", "p"])
