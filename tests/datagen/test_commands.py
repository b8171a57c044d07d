"""What the commands print of a real run: problems by name, and how to go on."""

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from datagen.commands import plan, show, verify
from datagen.commands.run import command, in_words, problems_of
from datagen.driver.driver import RunSummary
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from schemas.command import guarded
from schemas.run_checks import RunChecks
from tests.datagen.run_builders import flags, synthetic_settings, write_prompts

LENGTHS = [5, 64, 65, 130, 33, 12, 200, 90, 1, 40]

pytestmark = pytest.mark.usefixtures("cluster")


def words(folder: Path, **changes: object) -> list[str]:
    settings = synthetic_settings(folder)
    settings.update({name.replace("__", "."): value for name, value in changes.items()})
    return flags(settings)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Path:
    """A folder with prompts, one of them torn, and the dataset that a run made of them."""
    folder = tmp_path_factory.mktemp("made")
    file = write_prompts(folder / "prompts.jsonl", LENGTHS)
    file.write_text(file.read_text() + "{torn\n")
    assert guarded(command, words(folder)) == 1
    return folder


def test_a_run_says_why_it_ends_with_1_and_again_what_is_known(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "data")
    assert guarded(command, words(tmp_path)) == 1
    told = capsys.readouterr().out
    assert "small@1: complete, 10 samples" in told
    assert "quarantined   1 (unreadable_record 1)" in told
    assert "expected at most 0.00% of the prompts quarantined, got 9.09%" in told
    assert guarded(command, words(tmp_path)) == 0
    told = capsys.readouterr().out
    assert "nothing to do, all 10 samples were made before" in told
    assert "1 prompts were quarantined before" in told
    assert guarded(command, [*words(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def summary(**changes: object) -> RunSummary:
    facts: dict[str, object] = {
        "run_id": "r",
        "dataset": "data/d",
        "outcome": "complete",
        "version": 3,
        "n_samples": 8,
        "n_tokens": 800,
        "size_bytes": 10**6,
        "quarantined": {},
        "prompts_read": 10,
        "already_made": 0,
        "already_quarantined": 0,
        "duplicates": 0,
        "seconds": 2.0,
        "making_seconds": 1.0,
    }
    return RunSummary(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, []),
        ({"quarantined": {"empty": 1}}, []),
        ({"quarantined": {"empty": 2}}, ["quarantine"]),
        ({"quarantined": {"non_finite": 1}}, ["non_finite"]),
        ({"outcome": "interrupted"}, ["run"]),
    ],
    ids=["well", "allowed", "too many", "content", "interrupted"],
)
def test_what_a_run_is_blamed_for(changes: dict[str, object], where: Sequence[str]) -> None:
    assert [problem.where for problem in problems_of(summary(**changes), allowed=0.1)] == where


def test_the_way_to_go_on_can_be_pasted() -> None:
    stopped = summary(outcome="interrupted")
    told = in_words(stopped, problems_of(stopped, 0.0), ["--config", "my run.toml"])
    assert told.endswith("to go on      strata run --config 'my run.toml'")


def test_a_place_that_takes_nothing_is_told_before_a_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prompts(tmp_path / "prompts.jsonl", LENGTHS)
    (tmp_path / "data").touch()
    assert guarded(command, words(tmp_path)) == 2
    told = capsys.readouterr()
    assert f"{tmp_path}/data: expected a folder, got a file" in told.err
    assert told.err.count("expected a folder") == 1
    assert "loading" not in told.err
    given = [*words(tmp_path), "--plan.tokens_per_second", "100"]
    assert guarded(plan.command, given) == 1
    assert "expected a folder, got a file" in capsys.readouterr().out


def test_a_plan_of_nothing_measures_nothing(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(plan.command, words(made)) == 0
    assert "time        0 s: nothing is to be made" in capsys.readouterr().out


def test_a_plan_by_given_numbers_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    (tmp_path / "config.json").write_text(
        json.dumps({"num_hidden_layers": 4, "hidden_size": 32, "vocab_size": 1000})
    )
    given = words(tmp_path, output__root="s3://nowhere-at-all", plan__samples=10, plan__tokens_per_sample=100)
    assert guarded(plan.command, given) == 2
    told = capsys.readouterr().err
    assert "plan.model_config_file: expected" in told
    assert "plan.tokens_per_second: expected" in told
    given += ["--plan.model_config_file", str(tmp_path / "config.json"), "--plan.tokens_per_second", "100"]
    assert guarded(plan.command, [*given, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["samples"], answer["tokens"], answer["seconds"]) == (10, 1000, 10.0)


def test_show_says_what_an_engine_said_of_itself_and_what_proved_it(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    dataset = Dataset.open(LocalDoor(tmp_path / "data"), "small")
    said = {"embed": "the server's slot", "unproven": "layer2"}
    dataset.write_run_checks(
        RunChecks(
            run_id="of-a-server",
            made_at=datetime.now(UTC),
            binding="by nothing",
            n_bound=0,
            n_again=0,
            n_unbound=0,
            engine=said,
            proven_by="8 samples with 4 tensors; without layer1, against transformers",
        )
    )
    reference = str(tmp_path / "data" / "small")
    assert guarded(show.command, [reference, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["checks"][-1]["engine"] == said or told["checks"][0]["engine"] == said
    assert told["audit"]["lacking"] == []
    assert guarded(show.command, [reference]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "engine run of-a-server: unproven, so taken on trust: layer2; embed: the server's slot" in words
    assert "proven run of-a-server: 8 samples with 4 tensors; without layer1, against transformers" in words
    # A run of the synthetic engine: its own second pass.
    assert "2 samples with every boundary, against synthetic itself, in a second pass" in words


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    ("engine", "changes", "code", "told"),
    [
        ("sglang", {}, 2, "final: expected what goes into a layer, got the output of the last"),
        ("sglang", {"tensors__names": "embed,layer2"}, 0, "2 samples with 2 tensors; without layer1, layer3"),
        ("vllm", {}, 0, "2 samples with every boundary"),
        ("openai", {"layer_ids": "[0, 4]"}, 2, "expected layers 2 among those that the server captures"),
        ("openai", {"layer_ids": "[0, 2, 4]"}, 0, "2 samples with 4 tensors; without layer1, layer3"),
        ("vllm", {"audit__samples": 0}, 0, "none (audit.samples = 0)"),
    ],
)
def test_a_plan_by_given_numbers_refuses_what_the_engine_cannot_give_of_such_a_model(
    engine: str,
    changes: dict[str, object],
    code: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    own: dict[str, object] = {
        "plan__samples": 10,
        "plan__tokens_per_sample": 100,
        "plan__tokens_per_second": 100,
    }
    own |= {name: value for name, value in changes.items() if name != "layer_ids"}
    given = words(tmp_path, plan__model_config_file=tmp_path / "config.json", **own)
    at = given.index("--engine.name")
    given[at + 1] = engine
    given += ["--engine.model", "a-model"]
    if engine == "openai":
        given += ["--engine.openai.layer_ids", str(changes["layer_ids"])]
        given += ["--engine.openai.shared_folder", str(tmp_path)]
    assert guarded(plan.command, given) == code
    said = capsys.readouterr()
    assert told in " ".join((said.out + said.err).split())


def test_show_and_verify_name_the_damaged_file(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    dataset = str(tmp_path / "data" / "small")
    assert guarded(verify.command, [dataset]) == 0
    assert guarded(show.command, [dataset]) == 0
    capsys.readouterr()
    (index,) = (tmp_path / "data" / "small" / "index").iterdir()
    index.write_bytes(index.read_bytes()[:-1])
    for name, told_on in ((show.command, "err"), (verify.command, "out")):
        assert guarded(name, [dataset]) == 1
        assert index.name in getattr(capsys.readouterr(), told_on)


def test_a_sample_is_shown_by_the_beginning_of_its_id(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = str(made / "data" / "small")
    assert guarded(show.command, [dataset, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["samples"] == len(LENGTHS)
    (calibration,) = answer["calibrations"]
    assert calibration["agreeing"] == calibration["positions"] == calibration["n_tokens"]
    assert {tensor["median"] for tensor in calibration["tensors"]} == {0.0}
    assert guarded(show.command, [dataset]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"run {calibration['run_id']}, against synthetic itself, in a second pass" in shown
    assert guarded(show.command, [dataset, "--sample", "zz", "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    beginning = problem["repair"].split()[-1]
    assert guarded(show.command, [dataset, "--sample", beginning]) == 0
    assert beginning in capsys.readouterr().out
    assert guarded(show.command, [dataset, "--sample", ""]) == 2
    assert "got 10" in capsys.readouterr().err
