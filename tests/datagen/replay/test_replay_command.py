"""`strata replay` as it is typed: exit codes, JSON, the table, the picture and progress."""

import json
from pathlib import Path

import pytest
import torch

from datagen.commands.replay import command, read_wirings
from datagen.errors import ConfigError
from datagen.replay.errors import CheckpointError
from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.opening import open_door
from datagen.store.splits import assign
from schemas.command import UsageError
from schemas.records import SplitRule
from tests.datagen.replay.planted import Plant, Planted, plant


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    torch.set_num_threads(1)
    return plant(tmp_path_factory.mktemp("planted"), Plant(fc=("embed", "layer2", "layer3")), n=10)


def asked(planted: Planted, *more: str) -> list[str]:
    words = ["--dataset", planted.reference, "--draft", str(planted.draft), "--target", str(planted.target)]
    return [*words, "--samples", "8", "--steps", "2", *more]


def test_what_is_declared_and_wrong_ends_with_1_a_table_and_the_verdict(
    planted: Planted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "accuracy.svg"
    code = command(asked(planted, "--server", "vllm==0.33.0", "--picture", str(picture)))
    out, err = capsys.readouterr()
    assert code == 1
    assert "trained with embed, layer2, layer3" in out
    assert "the server declared, vllm==0.33.0, would feed layer2, layer3, layer5: expect" in out
    assert "layer2, layer3, layer5 [declared, served]" in out
    assert picture.read_text().startswith("<svg")
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert lines[0]["stage"].startswith("screening 2")


def test_the_declared_wiring_alone_is_quick_and_as_data(
    planted: Planted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wiring = tmp_path / "mine.toml"
    wiring.write_text(
        '[wiring]\nname = "mine"\nkind = "trainer"\nfc = ["embed", "layer2", "layer3"]\n'
        '[wiring.target]\ntensor = "final"\napplies_norm = true\n'
    )
    code = command(asked(planted, "--wirings", "declared", "--trainer-wiring", str(wiring), "--json"))
    data = json.loads(capsys.readouterr().out)
    assert code == 0
    assert data["ok"]
    assert data["trained_with"]["fc"] == ["embed", "layer2", "layer3"]
    assert data["is_as_declared"] is None
    assert data["verdict"][0].startswith("of what is declared, which alone was tried, embed, layer2, layer3")
    assert data["stored"]["wirings_tried"] == 3
    assert set(data["stored"]["rows"][0]["accuracy"]) == {"speculators", "specforge", "server"}
    assert len(data["stored"]["rows"][0]["teacher_forced_chain"]) == 2


def test_a_wiring_with_another_number_of_tensors_is_told(
    planted: Planted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wiring = tmp_path / "mine.toml"
    wiring.write_text(
        '[wiring]\nname = "mine"\nkind = "trainer"\nfc = ["embed", "layer2"]\n'
        '[wiring.target]\ntensor = "final"\napplies_norm = true\n'
    )
    assert command(asked(planted, "--trainer-wiring", str(wiring), "--samples", "2")) == 1
    assert (
        "expected 3 tensors, which the draft's fc takes, got 2 (mine: embed, layer2)"
        in capsys.readouterr().out
    )


def test_what_cannot_be_tried_is_an_error(planted: Planted, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        command([*asked(planted), "--draft", str(tmp_path)])
    with pytest.raises(ConfigError, match="expected a card"):
        command([*asked(planted), "--card", str(tmp_path / "none.json")])
    for wrong in (["--wirings", "some"], ["--samples", "0"], ["--trainer-ids", "x"]):
        with pytest.raises(UsageError):
            command([*asked(planted), *wrong])


def test_declared_alone_needs_something_declared(planted: Planted) -> None:
    with pytest.raises(ConfigError, match="nothing is declared"):
        command(asked(planted, "--wirings", "declared", "--trainer", "nobody"))


def test_wirings_are_read_as_they_are_written() -> None:
    assert read_wirings("all") == ("all",)


def test_only_the_samples_of_a_split_are_replayed(
    planted: Planted, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Dataset.open(open_door(planted.root), "demo")
    version = dataset.split(
        [SplitRule(name="default", seed=1, fractions=(("train", 0.6), ("held-out", 0.4)))]
    )
    inside = assign(dataset.snapshot().index, version.splits[0]).positions("held-out")
    assert 1 < len(inside) < 10
    words = asked(planted, "--samples", "12", "--wirings", "declared", "--json")
    command([*words, "--split", "held-out"])
    data = json.loads(capsys.readouterr().out)
    assert data["stored"]["conversations"] == len(inside)
    assert not any("--split" in note for note in data["notes"])
    command(words)
    data = json.loads(capsys.readouterr().out)
    assert data["stored"]["conversations"] == 10
    assert any("samples of every split (train, held-out) are replayed" in note for note in data["notes"])
    with pytest.raises(NotFoundError, match="expected a split of this version, got 'later'"):
        command([*words, "--split", "later"])


def test_a_server_of_ones_own_feeds_what_its_file_says(
    planted: Planted, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wiring = tmp_path / "server.toml"
    wiring.write_text('[wiring]\nname = "ours"\nkind = "server"\nfc = ["layer5", "layer2", "layer3"]\n')
    trainer = tmp_path / "trainer.toml"
    trainer.write_text(
        '[wiring]\nname = "mine"\nkind = "trainer"\nfc = ["embed", "layer2", "layer3"]\n'
        '[wiring.target]\ntensor = "final"\napplies_norm = true\n'
    )
    words = ["--trainer-wiring", str(trainer), "--server-wiring", str(wiring), "--json"]
    code = command(asked(planted, "--wirings", "declared", *words))
    data = json.loads(capsys.readouterr().out)
    assert code == 1
    assert any(row["fc"] == ["layer5", "layer2", "layer3"] for row in data["stored"]["rows"])
    assert any(line.startswith("the server declared, ours, would feed layer5") for line in data["verdict"])
