"""What ends a launch before the trainer is asked for anything: its packages, or the wiring."""

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas.command import UsageError
from schemas.errors import DatasetNameError
from service.trainers import launching
from service.trainers.errors import NotInstalledError, TrainerError
from service.trainers.held import open_held, parse_source
from service.trainers.launching import Asked, judged, plan_speculators
from tests.datagen.adapters.exports.builders import make_dataset
from tests.service.trainers.places import WAYS, held_in


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    return root


def test_a_trainer_that_is_not_installed_says_what_to_install(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "_is_there", lambda _: False)
    with pytest.raises(NotInstalledError, match=r"pip install 'strata-hidden-states\[speculators\]'"):
        plan_speculators(Asked(f"{root}/states", tmp_path / "p"), [])
    assert not (tmp_path / "p").exists()


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_is_there", lambda _: True)
    monkeypatch.setattr(launching, "version", lambda _: "0.8.0")
    with pytest.raises(NotInstalledError, match=r"expected release 0\.9\.0.*got 0\.8\.0"):
        launching._check_release()


def trainer(takes: Callable[..., object]) -> launching._Speculators:
    """Return its code as far as it reads words: a parser of one flag, and a config that `takes` them."""
    made = launching._Speculators.__new__(launching._Speculators)

    def build_parser() -> ArgumentParser:
        parser = ArgumentParser(prog="strata")
        parser.add_argument("--lr", type=float)
        parser.add_argument("--config")
        return parser

    made._resolution = SimpleNamespace(build_parser=build_parser)
    made._config = SimpleNamespace(from_sources=takes)
    made._destinations = {"lr"}
    return made


def test_words_that_the_trainer_does_not_take_are_told_without_all_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def takes(**_: object) -> object:
        raise ValueError("missing required value: set --verifier-name-or-path")

    for words, told in {
        ("--nonsense", "3"): "speculators train: unrecognized arguments: --nonsense 3",
        ("--lr", "much"): "speculators train: argument --lr: invalid float value: 'much'",
        (): "speculators train: missing required value: set --verifier-name-or-path",
    }.items():
        with pytest.raises(UsageError, match="the trainer does not take these arguments") as caught:
            trainer(takes).read(words)
        assert told in str(caught.value)
        assert "see `speculators train --help`" in str(caught.value)
        assert caught.value.exit_code == 2
    assert capsys.readouterr() == ("", "")


def test_the_same_is_judged_wherever_the_dataset_lies(root: Path, tmp_path: Path) -> None:
    with held_in(root, "states") as held:
        cards = {judged(held[way], Asked("", tmp_path, ("layer2", "layer5")))[0].card for way in WAYS}
    (card,) = cards
    assert card.wiring.fc == ("layer2", "layer5")
    assert card.dataset is not None
    assert (card.dataset.name, card.dataset.version) == ("states", 1)


@pytest.mark.parametrize(
    ("fc", "target", "told"),
    [
        (("layer2", "layer3"), None, "layer3"),
        (("layer2", "layer99"), None, "layer99"),
        (("layer5", "layer2"), None, "give --fc layer2,layer5"),
        (("layer2",), "layer4", "layer4"),
    ],
    ids=["not stored", "no such layer", "order", "target"],
)
def test_a_wiring_that_the_trainer_cannot_take_is_refused_by_name(
    root: Path, tmp_path: Path, fc: tuple[str, ...], target: str | None, told: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        judged(open_held(f"{root}/states"), Asked("", tmp_path / "p", fc, target))
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["http://127.0.0.1:8350", "http://127.0.0.1:8350#a/b", "http://h#a@0", "/"])
def test_a_source_is_written_in_one_of_two_ways(text: str) -> None:
    with pytest.raises(DatasetNameError):
        parse_source(text)
