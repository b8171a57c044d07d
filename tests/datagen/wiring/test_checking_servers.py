"""A server of one's own, declared in TOML, is compared like a known one."""

from pathlib import Path

import pytest

from datagen.commands import check
from tests.datagen.asking_commands import SGLANG, Capture, told
from tests.incident.makers import MEANT, make_dataset

TRAINER = ("--trainer", "speculators==0.9.0", "--trainer-ids=3,31,59")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("data"), MEANT)


def server(folder: Path, fc: tuple[str, ...] = ("layer3", "layer31", "layer59"), kind: str = "server") -> str:
    file = folder / "server.toml"
    listed = ", ".join(f'"{name}"' for name in fc)
    file.write_text(f'[wiring]\nname = "ours"\nkind = "{kind}"\nfc = [{listed}]\n')
    return str(file)


def test_what_it_feeds_is_held_against_dataset_and_trainer(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    words = ("--dataset", dataset, *TRAINER, "--server-wiring", server(tmp_path))
    code, said = told(capsys, check.command, *words)
    assert (code, said["ok"]) == (0, True), said["problems"]
    assert said["server"]["wiring"]["fc"] == ["layer3", "layer31", "layer59"]
    assert told(capsys, check.command, "--dataset", dataset, "--server-wiring", server(tmp_path))[0] == 0


def test_another_order_is_a_problem_in_each_slot_with_what_to_feed(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    swapped = server(tmp_path, ("layer31", "layer3", "layer59"))
    code, said = told(capsys, check.command, "--dataset", dataset, *TRAINER, "--server-wiring", swapped)
    assert code == 1
    problems = {problem["where"]: problem for problem in said["problems"] if problem["severity"] == "error"}
    assert set(problems) == {"served fc", "served fc[0]", "served fc[1]"}
    assert "ours" in problems["served fc"]["message"]
    wanted = "have the server of server.toml feed layer3, layer31, layer59, in this order"
    assert problems["served fc"]["repair"].startswith(wanted)


def test_a_trainers_wiring_is_no_servers(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    file = server(tmp_path, kind="trainer")
    Path(file).write_text(Path(file).read_text() + '[wiring.target]\ntensor = "final"\napplies_norm = true\n')
    code, said = told(capsys, check.command, "--dataset", dataset, *TRAINER, "--server-wiring", file)
    (problem,) = [problem for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, problem["where"]) == (1, "server: kind")
    assert "expected a server, got ours, a trainer" in problem["message"]


def test_two_servers_are_one_too_many(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    words = ("--dataset", dataset, "--server", SGLANG, "--server-wiring", server(tmp_path))
    code, said = told(capsys, check.command, *words)
    message = "expected one of --server and --server-wiring, got both"
    assert (code, said["problems"][0]["message"]) == (2, message)
