"""`strata check` and `strata wire` as their users meet them: what is compared, and what is told of it."""

import json
import sys
from pathlib import Path

import pytest

from datagen import cli
from datagen.commands import check, wire
from tests.datagen.asking_commands import SGLANG, TARGET_SHAPE, Capture, in_words, told
from tests.incident.makers import MEANT, draft_config, make_dataset, wiring_file


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("data"), MEANT)


def test_any_two_of_the_three_are_checked_alone(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    target = tmp_path / "config.json"
    target.write_text(json.dumps({"model_type": "kimi_k25", **TARGET_SHAPE}))
    draft = draft_config(tmp_path)
    given: dict[str, tuple[object, ...]] = {
        "dataset": ("--dataset", dataset),
        "trainer": ("--trainer", "speculators==0.9.0", "--trainer-ids=3,31,59"),
        "server": ("--server", SGLANG, "--draft-config", draft),
    }
    for one, other in (("dataset", "trainer"), ("dataset", "server"), ("trainer", "server")):
        more = () if "dataset" in (one, other) else ("--target-config", target)
        code, said = told(capsys, check.command, *given[one], *given[other], *more)
        assert (code, said["ok"]) == (0, True), said["problems"]
    given["trainer"] = ("--trainer", "speculators==0.9.0", "--trainer-ids=2,30,58")
    code, said = told(capsys, check.command, *given["trainer"], *given["dataset"])
    missing = [problem["slot"] for problem in said["problems"] if problem["kind"] == "missing"]
    assert (code, missing) == (1, [0, 1, 2])
    words = (*given["trainer"], *given["server"])
    assert told(capsys, check.command, *words)[0] == 2
    code, said = told(capsys, check.command, *words, "--target-config", target)
    slots = [problem["where"] for problem in said["problems"] if problem["where"].startswith("served fc")]
    assert (code, slots) == (1, ["served fc", "served fc[0]", "served fc[1]", "served fc[2]"])


def test_two_trainers_are_one_too_many(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    words = ("--dataset", dataset, "--trainer", "speculators", "--trainer-wiring", wiring_file(tmp_path))
    code, said = told(capsys, check.command, *words)
    assert (code, said["problems"][0]["message"]) == (
        2,
        "expected one of --trainer and --trainer-wiring, got both",
    )


def test_ids_that_a_trainer_is_given_stand_in_for_its_default(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """The same boundaries are other ids to another trainer; its default is not what it trains on then."""
    draft = draft_config(tmp_path)
    for trainer, given, code in (
        ("speculators==0.9.0", "3,31,59", 0),
        ("speculators==0.9.0", "2,30,58", 1),
        ("speculators==0.4.0", "2,30,58,60", 0),
        ("torchspec-vllm", "2,30,58", 0),
    ):
        words = ("--trainer", trainer, f"--trainer-ids={given}", "--server", SGLANG, "--draft-config", draft)
        got, said = told(capsys, check.command, "--dataset", dataset, *words)
        assert got == code, (trainer, said["problems"])
        fc = [problem for problem in said["problems"] if problem["where"] == "fc"]
        assert not any("--trainer-ids" in problem["repair"] for problem in fc)
    default = ("--trainer", "speculators==0.9.0", "--server", SGLANG, "--draft-config", draft)
    code, said = told(capsys, check.command, "--dataset", dataset, *default)
    (whole,) = [problem for problem in said["problems"] if problem["where"] == "fc"]
    assert (code, whole["repair"].endswith("say them with --trainer-ids")) == (1, True)
    own = make_dataset(tmp_path, ("embed", "layer3", "final_normed"))
    code, said = told(capsys, check.command, "--dataset", own, "--trainer", "deepspec", "--trainer-ids=-1,2")
    assert (code, said["trainer"]["wiring"]["fc"]) == (0, ["embed", "layer3"])


def test_a_dataset_that_is_not_there_is_told_with_what_is(capsys: Capture, dataset: str) -> None:
    for name in (f"{dataset}x", f"{dataset}@7"):
        code, said = told(capsys, check.command, "--dataset", name, "--server", SGLANG)
        assert (code, bool(said["problems"])) == (2, True)


def test_all_that_is_wrong_in_a_wiring_file_is_told_by_the_files_name(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[wiring]\nname = "mine"\nfc = ["layer03", "layer3", "layer61"]\nfoo = 1\n')
    words = ("--dataset", dataset, "--trainer-wiring", file)
    code, said = told(capsys, check.command, *words)
    wheres = {problem["where"] for problem in said["problems"]}
    wanted = {"kind", "foo", "wiring.fc[0]", "wiring.fc[2]"}
    assert (code, wheres) == (1, {f"trainer: {where}" for where in wanted})
    file.write_text("[wiring")
    text = in_words(capsys, check.command, *words)[1]
    assert "trainer: mine.toml: is not TOML: Expected ']'" in text
    server = wiring_file(tmp_path).read_text().replace('"trainer"', '"server"')
    file.write_text(server)
    code, said = told(capsys, check.command, *words)
    assert (code, said["problems"][0]["message"]) == (1, "expected a trainer, got mine, a server")


def test_what_a_server_of_two_minds_should_be_told_is_told(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """One of vLLM's runners reads ids that the other does not: what to write for both is said."""
    words = ("--trainer-wiring", wiring_file(tmp_path), "--draft-config", draft_config(tmp_path))
    code, said = told(capsys, check.command, "--dataset", dataset, "--server", "vllm==0.33.0", *words)
    (note,) = [problem for problem in said["problems"] if problem["kind"] == "not_compared"]
    assert (code, note["severity"]) == (1, "note")
    assert '{"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}' in note["repair"]


def test_ids_that_a_server_does_not_read_are_no_intention(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """What is served is then a default, and nothing that the training should be changed to."""
    words = ("--trainer-wiring", wiring_file(tmp_path), "--server", SGLANG)
    draft = draft_config(tmp_path, nested=False)
    code, said = told(capsys, check.command, "--dataset", dataset, *words, "--draft-config", draft)
    errors = [problem["where"] for problem in said["problems"] if problem["severity"] == "error"]
    slots = [f"served fc[{slot}]" for slot in range(3)]
    assert (code, errors) == (1, ["server: eagle_aux_hidden_state_layer_ids", "served fc", *slots])


def test_of_a_checkpoint_without_weights_only_the_config_is_judged(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    draft_config(tmp_path).rename(folder / "config.json")
    words = ("--dataset", dataset, "--server", SGLANG, "--draft-config", folder)
    code, said = told(capsys, check.command, *words)
    errors = [problem["where"] for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, errors) == (1, ["draft"])


def test_that_no_version_of_a_server_was_given_is_said_once(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    draft = draft_config(tmp_path)
    for server in ("sglang", "vllm"):
        words = ("--server", server, "--draft-config", draft, "--server-args", "--port 1")
        _, said = told(capsys, check.command, "--dataset", dataset, *words)
        assert sum("no version of" in problem["message"] for problem in said["problems"]) == 1


def test_a_trainer_that_reads_the_drafts_config_is_checked_by_it(tmp_path: Path, capsys: Capture) -> None:
    """On Kimi, SpecForge's SGLang takes ids as they are; before PR #25454 it added 1."""
    own = make_dataset(tmp_path, ("layer3", "layer31", "layer59", "final_normed"))
    draft = draft_config(tmp_path, (3, 31, 59))
    words = ("--dataset", own, "--trainer", "specforge==0.2.0", "--draft-config", draft)
    code, said = told(capsys, check.command, *words)
    assert (code, said["trainer"]["wiring"]["fc"]) == (0, ["layer3", "layer31", "layer59"])
    assert told(capsys, check.command, *words, "--server", SGLANG)[0] == 0
    code, said = told(capsys, check.command, *words, "--trainer-engine", "sglang==0.5.12")
    missing = [problem["where"] for problem in said["problems"] if problem["kind"] == "missing"]
    assert (code, missing) == (1, ["fc[0]", "fc[1]", "fc[2]"])
    code, said = told(capsys, check.command, *words, "--server", SGLANG, "--trainer-ids=1,2,3")
    (whole,) = [problem for problem in said["problems"] if problem["where"] == "served fc"]
    assert (code, whole["expected"], whole["got"]) == (
        1,
        "layer2, layer3, layer4",
        "layer3, layer31, layer59",
    )


@pytest.mark.parametrize("trainer", ["torchspec", "modelopt", "deepspec"])
def test_what_a_trainer_may_be_is_told_with_a_repair(capsys: Capture, dataset: str, trainer: str) -> None:
    code, said = told(capsys, check.command, "--dataset", dataset, "--trainer", trainer)
    assert code == 1
    for problem in said["problems"]:
        if problem["severity"] == "error":
            assert problem["where"] in ("trainer", "trainer: ids")
            assert problem["repair"]


@pytest.mark.parametrize("text", ["", "-1", "a", "3,,4", "9" * 5000, "3;31", "0x3", "٣"])
def test_boundaries_of_nonsense_are_told(tmp_path: Path, capsys: Capture, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", **TARGET_SHAPE}))
    code, said = told(capsys, wire.command, f"--boundaries={text}", "--target-config", file)
    assert (code, said["problems"][0]["where"]) == (2, "--boundaries")


def test_wire_says_what_to_write_and_who_cannot(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "kimi_k25", **TARGET_SHAPE}))
    words = ("--target-config", file, "--server", SGLANG)
    code, text = in_words(capsys, wire.command, "--boundaries", "3,31,59", *words)
    assert code == 0
    assert '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}}' in text
    code, text = in_words(capsys, wire.command, "--boundaries", "59,31,3", *words)
    assert (code, f"{SGLANG}: cannot" in text, "each slot has weights of its own" in text) == (1, True, True)
    code, text = in_words(
        capsys, wire.command, "--boundaries", "0,3,31", "--target-config", file, "--server", "vllm==0.33.0"
    )
    assert (code, "embed cannot be captured" in text) == (1, True)
    code, text = in_words(capsys, wire.command, "--boundaries", "3,31,59", "--target-config", file)
    assert (code, "eagle: cannot" in text, "vllm-v1: the draft's config.json" in text) == (0, True, True)


def test_wire_is_told_what_trainers_capture_with(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "kimi_k25", **TARGET_SHAPE}))
    words = ("--boundaries", "3,31,59", "--target-config", file, "--trainer", "specforge")
    for engine, ids_ in (("sglang==0.5.12", [2, 30, 58]), ("sglang==0.5.23", [3, 31, 59])):
        code, said = told(capsys, wire.command, *words, "--trainer-engine", engine)
        assert (code, said["consumers"][0]["ids"]) == (0, ids_)
    other = ("--trainer", "speculators", "--trainer-engine", "sglang==0.5.12")
    code, said = told(capsys, wire.command, *words, *other)
    assert (code, said["consumers"][1]["problems"][0]["where"]) == (1, "engine")
    every = ("--boundaries", "3,31,59", "--target-config", file, "--trainer-engine", "sglang==0.5.12")
    code, said = told(capsys, wire.command, *every)
    wheres = {problem["where"] for answer in said["consumers"] for problem in answer["problems"]}
    assert (code, "engine" in wheres) == (0, False)


def test_a_model_type_that_no_output_can_write_is_escaped(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "\ud800", **TARGET_SHAPE}))
    code, text = in_words(capsys, wire.command, "--boundaries", "3", "--target-config", file)
    assert (code, r"of \ud800, 61 layers" in text) == (0, True)


def test_both_commands_are_installed(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in ("check", "wire"):
        monkeypatch.setattr(sys, "argv", ["strata", name, "--help"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        assert capsys.readouterr().out.startswith(f"usage: strata {name} ")
