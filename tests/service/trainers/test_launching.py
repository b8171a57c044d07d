"""What ends a launch before the trainer is asked for anything: its packages, or the wiring."""

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas.command import UsageError
from schemas.errors import DatasetNameError
from service.trainers import launching
from service.trainers.errors import NotInstalledError, TrainerError, TrainingStoppedError, VerifierError
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


@pytest.mark.parametrize(
    ("saves", "told"),
    [
        (True, "to go on, rename draft/interrupted to an epoch's number"),
        (False, "nothing was saved: give the same command"),
    ],
)
def test_a_training_that_a_signal_stopped_is_not_one_that_ended(
    saves: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedByItError(Exception):
        pass

    shutdown = SimpleNamespace(TrainingInterruptedError=InterruptedByItError)

    def main(signal: str | None) -> None:
        """Stop, save and return, as its own does: the name is looked up when it is raised, and caught."""
        try:
            if signal is not None:
                raise shutdown.TrainingInterruptedError(signal)
        except shutdown.TrainingInterruptedError:
            if saves:
                Path("draft/interrupted").mkdir(parents=True)

    monkeypatch.chdir(tmp_path)
    cli = SimpleNamespace(main=lambda config: main(config.signal))
    modules = {"speculators.train.graceful_shutdown": shutdown, "speculators.train.cli": cli}
    monkeypatch.setattr(launching, "_loaded", modules.__getitem__)
    made = launching._Speculators.__new__(launching._Speculators)

    def resolve(words: list[str]) -> SimpleNamespace:
        said = words[0] if words else None
        return SimpleNamespace(signal=said, flatten=lambda: {"save_path": "draft"})

    made._config = SimpleNamespace(resolve=resolve)
    made.main([])
    with pytest.raises(TrainingStoppedError, match="expected to train to the end, got SIGTERM") as caught:
        made.main(["SIGTERM"])
    assert told in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_model_that_cannot_be_read_is_told_in_a_line() -> None:
    def absent(*_: object, **__: object) -> object:
        raise OSError("no connection\nand not in the cache")

    made = launching._Speculators.__new__(launching._Speculators)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "_loaded", lambda _: SimpleNamespace(get_verifier_config=absent))
        with pytest.raises(VerifierError, match="no connection and not in the cache") as caught:
            made.shape({"verifier_name_or_path": "owner/name", "trust_remote_code": False})
    assert caught.value.exit_code == 2
