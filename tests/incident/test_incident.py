"""Four unnamed tensors a token, a trainer that takes all but the last, a server that feeds the last three.

Every shape was right. `strata check` must say all that was wrong, with a repair for each, to a newcomer.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from datagen.commands.check import command
from datagen.wiring.checking import Asked, Report, check
from schemas.problem import Problem
from tests.incident.makers import MEANT, SAVED, draft_config, make_dataset

TRAINER, SERVER = "speculators==0.4.0", "sglang==0.5.23"
FLAGS = (
    "--speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 16"
)
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
README_BLOCK = README.partition("each with its repair:\n\n```text\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("incident")
    return Asked(
        dataset=make_dataset(folder, SAVED),
        trainer=TRAINER,
        server=SERVER,
        draft_config=draft_config(folder),
        server_args=FLAGS,
    )


@pytest.fixture(scope="module")
def report(asked: Asked) -> Report:
    return check(asked)


def at(report: Report, where: str) -> Problem:
    (problem,) = [problem for problem in report.errors if problem.where == where]
    return problem


def test_the_training_input_is_named_as_a_whole_and_by_slot(report: Report) -> None:
    whole = at(report, "fc")
    assert "expected the draft's input to be layer3, layer31, layer59" in whole.message
    assert f"got embed, layer3, layer31 (what {TRAINER} takes)" in whole.message
    assert "every shape is right" in whole.message
    for slot, (meant, fed) in enumerate(zip(MEANT, SAVED[:-1], strict=False)):
        problem = at(report, f"fc[{slot}]")
        assert problem.message.startswith(f"expected {meant} (")
        assert f", got {fed} (" in problem.message
        assert problem.repair == whole.repair
    assert whole.repair is not None
    assert whole.repair.startswith(f"feed {TRAINER} layer3, layer31, layer59 as the input, in this order")


def test_the_training_target_is_named_and_is_not_final(report: Report) -> None:
    problem = at(report, "target")
    assert problem.message.startswith(f"expected final ({TRAINER} runs the final norm itself), got layer59")
    assert "layer 59 of 61, not the last one" in problem.message
    assert problem.repair is not None
    assert "add final to tensors.names" in problem.repair


def test_the_serving_fault_is_named_by_slot_with_what_to_write(report: Report) -> None:
    whole = at(report, "served fc")
    assert f"embed, layer3, layer31 (the weights were trained on it by {TRAINER})" in whole.message
    assert f"got layer3, layer31, layer59 (what {SERVER} will feed)" in whole.message
    for slot, (trained, fed) in enumerate(pairwise(SAVED)):
        message = at(report, f"served fc[{slot}]").message
        assert message.startswith(f"expected {trained} (")
        assert f", got {fed} (" in message
    assert whole.repair is not None
    # The ids in the repair feed what was trained on: 0 is not 1, so this release takes them as they are.
    assert '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 31]}}' in whole.repair
    assert whole.repair.endswith("or train on layer3, layer31, layer59")


def test_the_flag_that_is_overruled_is_named(report: Report) -> None:
    problem = at(report, "--speculative-num-draft-tokens")
    assert problem.message.startswith("expected 16 draft tokens, runs 2")


def test_there_is_nothing_else(report: Report) -> None:
    assert {problem.where.partition("[")[0] for problem in report.errors} == {
        "target",
        "fc",
        "served fc",
        "--speculative-num-draft-tokens",
    }
    assert {problem.kind for problem in report.notes} == {"mask_alignment", "position_start"}


def test_a_person_reads_four_problems_each_with_its_repair_once(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dataset", str(asked.dataset), "--trainer", TRAINER, "--server", SERVER]
    words += ["--draft-config", str(asked.draft_config), f"--server-args={FLAGS}"]
    assert command(words) == 1
    told = capsys.readouterr().out
    assert f"trainer  {TRAINER}: input embed, layer3, layer31; target layer59, which it norms" in told
    assert f"server   {SERVER}: input layer3, layer31, layer59" in told
    assert "\n4 problems\n" in told
    assert told.count("repair: ") == 4
    assert README_BLOCK
    for line in README_BLOCK.strip().splitlines():
        for piece in line.split("..."):
            assert piece.strip(" ,") in told
    assert f"{asked.dataset}@1: embed, layer3, layer31, layer59 (" in told


def test_the_tensors_that_were_meant_are_accepted(tmp_path: Path) -> None:
    """With `final` saved in place of `embed`, the same trainer, server and config mean the same."""
    report = check(
        Asked(
            dataset=make_dataset(tmp_path, MEANT),
            trainer=TRAINER,
            server=SERVER,
            draft_config=draft_config(tmp_path),
        )
    )
    assert report.errors == []


def test_all_five_saved_is_one_tensor_too_many(tmp_path: Path) -> None:
    report = check(
        Asked(
            dataset=make_dataset(tmp_path, (*SAVED, "final")),
            trainer=TRAINER,
            server=SERVER,
            draft_config=draft_config(tmp_path),
        )
    )
    assert at(report, "fc").kind == "slots"
    assert "expected no such slot" in at(report, "fc[3]").message
    assert "got none" in at(report, "served fc[3]").message


def test_without_a_draft_the_trainers_own_default_is_a_note_told_once(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    """A default that nobody chose is no intention: it is told, and fails nothing."""
    assert command(["--dataset", str(asked.dataset), "--trainer", TRAINER]) == 1
    told = capsys.readouterr().out
    assert "\n1 problem\n  target: " in told
    assert told.count(f"({TRAINER}'s own default for 61 layers)") == 1
