"""`strata ingest` as a user runs it: what is told, what is written, and the exit codes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from datagen.commands.ingest import command
from datagen.export.listed_files import SUMS
from datagen.ingest.formats import FORMATS
from schemas.command import guarded
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset
from tests.datagen.ingest.ingest_builders import back, export
from tests.datagen.ingest.test_proof import NAMES, write


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    return export(make_dataset(root, ("layer3", "layer5", "layer6", "final")), "speculators-v1", root / "out")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = guarded(command, list(map(str, words)))
    out = capsys.readouterr()
    return code, out.out, out.err


def words(folder: Path, root: Path, *more: object) -> list[object]:
    return ["--format", "speculators-v1", folder, "--dataset", f"{root}/back", *more]


def test_an_export_comes_in_by_its_card(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *words(exported, tmp_path, "--unproven"))
    assert code == 0
    assert "slot     hidden_states[3]: final, bfloat16[token, 8]" in out
    assert "proof    none: the names are as the card beside them says" in out
    assert f"written  {tmp_path}/back@1: {len(LENGTHS)} samples" in out
    code, out, _ = run(capsys, *words(exported, tmp_path, "--unproven"))
    assert (code, "nothing new" in out) == (0, True)


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    (file,) = folder.rglob("data_3.pt")
    file.write_bytes(file.read_bytes()[:-9])
    code, out, _ = run(capsys, *words(folder, tmp_path, "--unproven", "--dry-run"))
    assert code == 1
    assert f"{len(LENGTHS) - 1} samples" in out
    assert "nothing is written" in out
    assert f"{file.relative_to(folder)}: {file}: expected a whole file of torch.save" in out
    assert not (tmp_path / "back").exists()


def test_json_tells_all_of_it(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    (folder / SUMS).unlink()
    (file,) = folder.rglob("data_3.pt")
    content = torch.load(file, weights_only=True)
    content["hidden_states"][0][0] = float("nan")
    torch.save(content, file)
    code, out, _ = run(capsys, *words(folder, tmp_path, "--unproven", "--json", "--workers", 1))
    data: dict[str, Any] = json.loads(out)
    assert code == 1
    assert (data["files"], data["planned_samples"], data["proof"]) == (len(LENGTHS), len(LENGTHS), None)
    assert data["written"]["samples"] == len(back(tmp_path)) == len(LENGTHS) - 1
    assert data["written"]["quarantined"] == {"non_finite": 1}
    (refused,) = data["refused"]
    assert (refused["sample"], refused["reason"]) == (str(file.relative_to(folder)), "non_finite")


def test_with_a_target_labels_are_proven_in_one_command(
    source: Any, tiny_target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "v1", source)
    target = ("--target", tiny_target, "--device", "cpu")
    code, _, err = run(capsys, *words(folder, tmp_path, *target, "--labels", "embed,layer2,layer1,final"))
    assert code == 1
    assert "write --labels embed,layer1,layer2,final" in err
    assert not (tmp_path / "back").exists()
    code, out, _ = run(capsys, *words(folder, tmp_path, *target, "--labels", ",".join(NAMES)))
    assert code == 0
    assert "slot     hidden_states[3]: final, float32[token, 48] (equal over" in out
    assert "norm     kept: " in out
    assert back(tmp_path).final_norm() is not None
    code, out, err = run(capsys, *words(folder, tmp_path, *target, "--labels", "layer1,embed,layer2,final"))
    assert (code, out) == (1, "")
    assert "write --labels embed,layer1,layer2,final" in err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--unproven", "--labels", "a,,b"), "expected names with a comma between two of them"),
        ((), "give --target MODEL, or --unproven"),
        (("--unproven", "--workers", "0"), "expected a number from 1"),
    ],
)
def test_what_cannot_be_tried_ends_with_2(
    more: tuple[str, ...], told: str, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *words(exported, tmp_path, *more))
    assert (code, told in err) == (2, True)


def test_an_unknown_format_and_a_version_are_refused(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, exported, "--format", "csv", "--dataset", f"{tmp_path}/back")
    assert (code, ", ".join(FORMATS) in err) == (2, True)
    code, _, err = run(capsys, exported, "--format", "eagle", "--dataset", f"{tmp_path}/back@1")
    assert (code, "expected ROOT/DATASET, got version 1" in err) == (2, True)


def test_files_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "nowhere"
    code, _, err = run(capsys, *words(card, tmp_path, "--unproven"))
    assert (code, "give --target MODEL" in err) == (2, True)


def test_files_stand_before_and_behind_the_words(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (exported / f"data_{number}.pt" for number in (1, 4))
    code, out, _ = run(capsys, *words(first, tmp_path, "--unproven", "--dry-run"), second)
    assert (code, "files    2 samples" in out) == (0, True)


def test_what_is_not_there_could_not_be_tried(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (exported, tmp_path / "none")
    more = ("--dataset", f"{tmp_path}/back", "--unproven", "--masks", tmp_path / "masks")
    code, _, err = run(capsys, "--format", "speculators-v1", *names, *more)
    assert code == 2
    assert err.count("expected a file or a folder, got nothing of this name") == 2
    assert all(f"{name}: " in err for name in (f"files: {names[1]}", f"--masks: {tmp_path}/masks"))


def test_states_without_the_masks_beside_them_ask_for_masks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = export(make_dataset(tmp_path), "speculators", tmp_path / "out")
    for file in [*out.glob("*.arrow"), out / "state.json"]:
        file.unlink()
    code, _, err = run(capsys, "--format", "speculators", out, "--dataset", f"{tmp_path}/back", "--unproven")
    assert (code, "give its folder with --masks" in err) == (2, True)
