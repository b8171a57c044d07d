"""`strata check` and `strata wire` as their users meet them: nonsense is told, never a traceback; cards."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datagen import checking, cli
from datagen.cards import MAX_CARD_BYTES
from datagen.commands import check, wire
from datagen.errors import ConfigError
from datagen.wiring_inputs import MAX_CONFIG_BYTES
from schemas.card import CARD_FILE, Card
from schemas.command import guarded
from tests.incident.makers import MEANT, draft_config, kimi, make_dataset, wiring_file

SGLANG = "sglang==0.5.23"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("data"), MEANT)


def told(capsys: Capture, command: Callable[..., int], *words: object) -> tuple[int, dict[str, Any]]:
    """Run a command with `--json`, and return its exit code and the one JSON object on standard output."""
    code = guarded(command, [*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert captured.err == ""
    content = json.loads(captured.out)
    assert isinstance(content, dict)
    assert captured.out.count("\n") == 1
    answers = [content, *content.get("consumers", ())]
    problems = [problem for answer in answers for problem in answer.get("problems", ())]
    assert all(problem["repair"] for problem in problems if problem["severity"] == "error")
    return code, content


def in_words(capsys: Capture, command: Callable[..., int], *words: object) -> tuple[int, str]:
    code = guarded(command, list(map(str, words)))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def ids(value: object) -> str:
    return json.dumps({"eagle_config": {"eagle_aux_hidden_state_layer_ids": value}})


NONSENSE: dict[str, str | bytes] = {
    "nothing": "",
    "null": "null",
    "a list": "[1]",
    "a number": "3",
    "no keys": "{}",
    "negative ids": ids([-5, 3, 31]),
    "huge ids": ids([10**30, 3, 31]),
    "a number of 6000 digits": ids("IDS").replace('"IDS"', f"[{'9' * 6000}]"),
    "ids past the last layer": ids([3, 31, 62]),
    "strings": ids(["3", "31", "59"]),
    "one string": ids("3,31,59"),
    "doubles": ids([3, 3, 59]),
    "booleans": ids([True, 3, 5]),
    "fractions": ids([3.0, 31.5, 59]),
    "no numbers": ids("IDS").replace('"IDS"', "[NaN, Infinity]"),
    "an object": ids({"a": 1}),
    "nulls": ids([None, 3, 4]),
    "no ids": ids([]),
    "lists in lists": ids([[[3]]]),
    "too many ids": ids(list(range(100_000))),
    "nested twice": json.dumps(
        {"eagle_config": {**json.loads(ids([3, 31, 59])), "eagle_aux_hidden_state_layer_ids": [1, 2, 5]}}
    ),
    "a key twice": f'{{"eagle_config": {{}}, {ids([3, 31, 59])[1:]}',
    "no object in eagle_config": '{"eagle_config": [1]}',
    "half a surrogate pair": ids("\ud800").replace("}}", '}, "model_type": "\\ud800"}'),
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "bytes": bytes(range(256)),
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "sizes": json.dumps({"hidden_size": -1, "vocab_size": 10**40, "rope_scaling": [1], "layer_types": 5}),
    "10 MB": json.dumps({"x": "y" * 10_000_000}),
    "8 MB of ids": ids([3] * 1_500_000),
}


@pytest.mark.parametrize("server", [SGLANG, "vllm==0.33.0"])
@pytest.mark.parametrize("content", NONSENSE.values(), ids=NONSENSE)
def test_a_draft_config_of_nonsense_is_problems(
    tmp_path: Path, capsys: Capture, dataset: str, content: str | bytes, server: str
) -> None:
    file = tmp_path / "draft.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    words = ("--dataset", dataset, "--server", server, "--draft-config", file)
    code, said = told(capsys, check.command, *words)
    assert code in (1, 2)
    assert said.get("error") or said["problems"]
    assert len(json.dumps(said)) < 20_000
    again, text = in_words(capsys, check.command, *words)
    assert again == code
    assert "Traceback" not in text


@pytest.mark.parametrize("flag", ["--target-config", "--card", "--trainer-wiring"])
@pytest.mark.parametrize("content", NONSENSE.values(), ids=NONSENSE)
def test_any_other_file_of_nonsense_is_problems(
    tmp_path: Path, capsys: Capture, dataset: str, content: str | bytes, flag: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, said = told(capsys, check.command, "--dataset", dataset, "--trainer", "speculators", flag, file)
    assert code in (1, 2)
    assert said.get("error") or said["problems"]
    if flag == "--target-config":
        code, said = told(capsys, wire.command, "--boundaries", "3,31", flag, file)
        assert (code, bool(said["error"])) == (2, True)


@pytest.mark.parametrize("flag", ["--draft-config", "--target-config", "--card", "--trainer-wiring"])
def test_a_folder_and_a_file_that_is_not_there_are_told_by_name(
    tmp_path: Path, capsys: Capture, dataset: str, flag: str
) -> None:
    for path in (tmp_path, tmp_path / "gone", Path("a\0b")):
        code, said = told(capsys, check.command, "--dataset", dataset, "--server", SGLANG, flag, path)
        assert code == 2
        assert said["error"].startswith(str(path))


TARGET_SHAPE: dict[str, object] = {"num_hidden_layers": 61, "hidden_size": 8, "vocab_size": 1000}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"num_hidden_layers": "61"}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": [1]}, "vocab_size"),
        ({"architectures": {"a": 1}}, "architectures"),
        ({"architectures": [5]}, "architectures"),
        ({"model_type": ["kimi_k25"]}, "model_type"),
        ({"text_config": "x"}, "text_config"),
    ],
)
def test_a_target_config_of_wrong_types_is_told_by_field(
    tmp_path: Path, capsys: Capture, change: dict[str, object], where: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "kimi_k25", **TARGET_SHAPE}))
    assert told(capsys, wire.command, "--boundaries", "3,31,59", "--target-config", file)[0] == 0
    file.write_text(json.dumps({"model_type": "kimi_k25", **TARGET_SHAPE, **change}))
    code, said = told(capsys, wire.command, "--boundaries", "3,31,59", "--target-config", file)
    assert code == 2
    assert any(problem["where"].endswith(f": {where}") for problem in said["problems"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "got 1"),
        (("--server", ""), 2, "got 1"),
        (("--server", "sglang==x"), 1, "expected a version"),
        (("--server", "=="), 1, "expected one of sglang"),
        (("--server", "\udcff"), 1, "expected one of sglang"),
        (("--server", "speculators"), 1, "expected a server"),
        (("--trainer", "sglang"), 1, "expected a trainer"),
        (("--trainer", "x" * 100_000), 1, "expected one of automodel"),
        (("--trainer", "speculators==0.9.0", "--server-args", "--port 1"), 2, "expected --server with it"),
        (("--server", SGLANG, "--server-args", "'"), 1, "closing quotation"),
        (("--server", SGLANG, "--server-args", "--speculative-num-steps \ud800"), 1, ""),
        (("--no-such-flag",), 2, "unrecognized"),
        (("--trainer", "speculators", "--trainer-ids", "3,x"), 2, "expected layer ids as 2,30,58"),
        (("--trainer", "speculators", "--trainer-ids", "9" * 5000), 2, "expected layer ids as 2,30,58"),
        (("--trainer", "speculators", "--trainer-ids", "3,999"), 1, "999"),
        (("--trainer", "deepspec"), 1, "DeepSpec has no default"),
        (("--server", SGLANG, "--trainer-ids", "3,31"), 2, "expected --trainer with it"),
        (("--server", SGLANG, "--trainer-engine", "sglang"), 2, "expected --trainer with it"),
        (("--trainer", "specforge", "--trainer-engine", "vllm==0.33.0"), 1, "expected sglang at a version"),
        (("--trainer", "speculators", "--trainer-engine", "vllm"), 1, "expected none for speculators"),
        (("--server", SGLANG, "--raw"), 2, "expected --dataset and a trainer with it"),
        (("--server", SGLANG, "--save-card", "card.json"), 2, "expected --dataset, and --trainer"),
    ],
)
def test_words_of_nonsense_are_problems(
    capsys: Capture, dataset: str, words: tuple[str, ...], code: int, message: str
) -> None:
    got, said = told(capsys, check.command, "--dataset", dataset, *words)
    assert got == code
    assert any(message in problem["message"] for problem in said["problems"])
    assert in_words(capsys, check.command, "--dataset", dataset, *words)[0] == code


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


def saving(folder: Path, dataset: str, card: Path, *more: object) -> tuple[object, ...]:
    return ("--dataset", dataset, "--trainer-wiring", wiring_file(folder), "--save-card", card, *more)


def test_a_card_is_written_once_and_read_back(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card, draft = tmp_path / "my card.json", draft_config(tmp_path)
    words = saving(tmp_path, dataset, card, "--draft-config", draft)
    code, text = in_words(capsys, check.command, *words)
    assert (code, text.splitlines()[-1]) == (0, f"card     {card}")
    written = card.read_bytes()
    saved = Card.from_json(written, "card")
    assert saved.wiring.fc == MEANT[:-1]
    assert saved.dataset is not None
    assert (saved.dataset.name, saved.dataset.version) == ("states", 1)
    assert saved.contract is not None
    assert saved.contract.vocabulary.draft_size == 100
    # Again: it is there already, and equal.
    assert told(capsys, check.command, *words)[1]["card"] == str(card)
    assert card.read_bytes() == written
    served = ("--card", card, "--server", SGLANG, "--draft-config", draft)
    code, said = told(capsys, check.command, "--dataset", dataset, *served)
    assert (code, said["ok"]) == (0, True)
    assert told(capsys, check.command, *served)[0] == 0


def test_another_card_is_not_written_over(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    assert told(capsys, check.command, *saving(tmp_path, dataset, card))[0] == 0
    written = card.read_bytes()
    other = saving(tmp_path, dataset, card, "--draft-config", draft_config(tmp_path))
    code, said = told(capsys, check.command, *other)
    assert (code, "or this very card, got another" in said["error"]) == (2, True)
    assert card.read_bytes() == written
    card.write_text("a thesis")
    assert told(capsys, check.command, *other)[0] == 2
    assert card.read_text() == "a thesis"


def test_a_card_is_not_written_where_something_is_wrong(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    card = tmp_path / "card.json"
    wrong = wiring_file(tmp_path, target="layer59")
    words = ("--dataset", dataset, "--trainer-wiring", wrong, "--save-card", card)
    code, text = in_words(capsys, check.command, *words)
    assert (code, text.splitlines()[-1]) == (1, "no card is written")
    assert told(capsys, check.command, *words)[1]["card"] is None
    assert not card.exists()
    right = saving(tmp_path, dataset, tmp_path / "wiring.toml" / "card.json")
    assert told(capsys, check.command, *right)[0] == 2


def test_a_card_lies_in_a_folder_beside_a_drafts_config(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    (tmp_path / "draft").mkdir()
    code, said = told(capsys, check.command, *saving(tmp_path, dataset, tmp_path / "draft"))
    assert (code, said["card"]) == (0, str(tmp_path / "draft" / CARD_FILE))
    assert told(capsys, check.command, "--dataset", dataset, "--card", tmp_path / "draft")[0] == 0


def test_a_trainer_is_compared_with_the_card(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    told(capsys, check.command, *saving(tmp_path, dataset, card, "--draft-config", draft_config(tmp_path)))
    assert told(capsys, check.command, "--card", card, "--trainer-wiring", wiring_file(tmp_path))[0] == 0
    other = wiring_file(tmp_path, ("layer3", "layer59", "layer31"), "final", norm=False)
    code, said = told(capsys, check.command, "--card", card, "--trainer-wiring", other)
    assert code == 1
    errors = {problem["where"] for problem in said["problems"] if problem["severity"] == "error"}
    assert errors == {"fc", "fc[1]", "fc[2]", "target"}
    assert all(problem["repair"] for problem in said["problems"] if problem["severity"] == "error")


def test_a_server_is_compared_with_the_card_whatever_a_trainer_takes(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """The weights are the card's: a trainer that would take what is served does not make it right."""
    card, draft = tmp_path / "card.json", draft_config(tmp_path, (3, 31, 58))
    told(capsys, check.command, *saving(tmp_path, dataset, card))
    trainer = wiring_file(tmp_path, ("layer3", "layer31", "layer58"))
    words = ("--card", card, "--trainer-wiring", trainer, "--server", SGLANG, "--draft-config", draft)
    code, said = told(capsys, check.command, *words)
    errors = {problem["where"] for problem in said["problems"] if problem["severity"] == "error"}
    assert (code, errors) == (1, {"fc", "fc[2]", "served fc", "served fc[2]"})


def test_no_card_is_made_of_what_is_wrong_or_too_little(tmp_path: Path, dataset: str) -> None:
    wrong = checking.Asked(dataset=dataset, trainer_wiring=wiring_file(tmp_path, target="layer59"))
    for asked in (wrong, checking.Asked(dataset=dataset, server=SGLANG)):
        with pytest.raises(ConfigError, match="mean the same for a card"):
            checking.card_of(checking.check(asked))


def test_a_drafts_config_is_compared_with_the_contract_of_the_card(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """Tensors in their places, and a norm flag of another value: the second silent failure."""
    card, draft = tmp_path / "card.json", draft_config(tmp_path)
    told(capsys, check.command, *saving(tmp_path, dataset, card, "--draft-config", draft))
    content = {**json.loads(draft.read_text()), "norm_before_residual": True}
    draft.write_text(json.dumps(content))
    code, said = told(capsys, check.command, "--dataset", dataset, "--card", card, "--draft-config", draft)
    (problem,) = [problem for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, problem["where"]) == (1, "norm_before_residual")


def test_a_card_of_another_format_or_target_is_refused(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    told(capsys, check.command, *saving(tmp_path, dataset, card))
    other = make_dataset(tmp_path, MEANT, kimi(weights="3"))
    code, said = told(capsys, check.command, "--dataset", other, "--card", card)
    errors = [problem["where"] for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, errors) == (1, ["target.weights.sha256"])
    card.write_bytes(card.read_bytes().replace(b"strata.card.v1", b"strata.card.v2"))
    code, said = told(capsys, check.command, "--dataset", dataset, "--card", card)
    assert (code, said["problems"][0]["where"]) == (2, "format")
    code, text = in_words(capsys, check.command, "--dataset", dataset, "--card", draft_config(tmp_path))
    assert (code, text.count("\n")) == (2, 2)
    assert "format: expected 'strata.card.v1', got no format (take the card as it was saved" in text
    card.write_bytes(b" " * (MAX_CARD_BYTES + 1))
    assert "too large" in told(capsys, check.command, "--dataset", dataset, "--card", card)[1]["error"]
    assert MAX_CARD_BYTES < MAX_CONFIG_BYTES


def test_both_commands_are_installed(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in ("check", "wire"):
        monkeypatch.setattr(sys, "argv", ["strata", name, "--help"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        assert capsys.readouterr().out.startswith(f"usage: strata {name} ")
