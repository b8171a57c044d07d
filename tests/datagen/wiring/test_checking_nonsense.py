"""`strata check` and `strata wire` on nonsense of every kind: it is told, never a traceback."""

import json
from pathlib import Path

import pytest

from datagen.commands import check, wire
from tests.datagen.asking_commands import SGLANG, TARGET_SHAPE, Capture, in_words, told
from tests.incident.makers import MEANT, make_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("data"), MEANT)


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
