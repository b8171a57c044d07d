"""`strata replay` as it is typed: exit codes, JSON, the table, the picture and progress."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from datagen.commands.replay import command, read_wirings
from datagen.errors import ConfigError
from datagen.replay.errors import CheckpointError, ReplayError
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


def test_declared_alone_needs_something_declared(planted: Planted, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(planted.draft, draft)
    config = json.loads((draft / "config.json").read_text())
    del config["eagle_aux_hidden_state_layer_ids"]
    (draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="nothing is declared") as caught:
        command(asked(planted, "--wirings", "declared", "--draft", str(draft)))
    told = str(caught.value)
    assert "nobody says what this draft was trained on" in told
    assert "name --trainer, --card or --server, or try all wirings" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--server", "vlm"], "did you mean vllm?"),
        (["--server", "sglang==x"], "server version"),
        (["--trainer", "speculator==0.9.0"], "did you mean speculators?"),
        (["--trainer", "vllm"], "expected a trainer, got vllm, a server"),
        (["--server", "foo", "--trainer", "nobody"], "expected one of"),
    ],
)
def test_a_name_that_is_not_known_is_refused_before_anything_runs(
    planted: Planted, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        command(asked(planted, *words))
    assert caught.value.exit_code == 2
    assert len(caught.value.problems) == len(words) // 2
    assert told in str(caught.value)
    assert "stage" not in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_refused_before_anything_runs(
    planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, got in ((tmp_path / "no" / "x.svg", "got no folder"), (tmp_path, "got a folder")):
        with pytest.raises(ReplayError, match=got):
            command(asked(planted, "--picture", str(place)))
    assert "stage" not in capsys.readouterr().err


def test_a_target_that_is_none_is_told_with_what_to_give(planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "nowhere"):
        with pytest.raises(ReplayError, match="the target cannot be opened") as caught:
            command(asked(planted, "--target", str(target)))
        assert all(problem.repair for problem in caught.value.problems)


def test_samples_that_are_not_read_to_their_end_are_told(
    planted: Planted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datagen.replay.cases.MAX_TOKENS", 64)
    command(asked(planted, "--wirings", "declared", "--json"))
    (note,) = [note for note in json.loads(capsys.readouterr().out)["notes"] if "longer than" in note]
    assert note.partition(" ")[2].startswith("of 8 samples are longer than the ")


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
