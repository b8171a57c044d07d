"""A real vLLM on a real draft: which norms it runs with and which weights it refuses, against our check."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from deploy.demo.model import MODEL
from schemas.contract import contract_problems, read_contract
from schemas.contract.draft import FlagName
from schemas.contract.servers import reading_of
from tests.oracle import vllm_cpu
from tests.oracle.draft_folder import plain_config, speculators_config, write_draft

PROMPTS = [[1, 2, 3, 504, 605, 706]]
HIDDEN = 576
BEFORE_FC = [("input_norm.weight", 3 * HIDDEN)]
EACH = [(f"fc_norm.{slot}.weight", HIDDEN) for slot in range(3)]
ALL_FLAGS = {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True}

CASES: dict[str, tuple[dict[str, Any], list[tuple[str, int]]]] = {
    "plain, before fc": (ALL_FLAGS, BEFORE_FC),
    "plain, nested": ({"eagle_config": {"norm_before_fc": True}, "fc_norm": True}, [*BEFORE_FC, *EACH]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plain_draft_runs_with_the_norms_that_we_say(case: str, tmp_path: Path) -> None:
    flags, norms = CASES[case]
    _compare_norms(plain_config() | flags, norms, tmp_path)


@pytest.mark.parametrize("flags", [{}, ALL_FLAGS | {"norm_before_residual": False}], ids=["nothing", "said"])
def test_a_draft_of_speculators_runs_with_the_norms_that_we_say(
    flags: dict[str, Any], tmp_path: Path
) -> None:
    _compare_norms(speculators_config() | flags, BEFORE_FC if flags else [], tmp_path)


def test_vllm_drops_an_input_norm_that_no_flag_asks_for_without_a_word(tmp_path: Path) -> None:
    config = plain_config()
    weights = write_draft(tmp_path / "draft", config, 3, BEFORE_FC)
    answer = vllm_cpu.serve(MODEL, tmp_path / "draft", PROMPTS, tmp_path)
    assert answer.norms == dict.fromkeys(get_args(FlagName), False)
    assert "input_norm.weight" not in (tmp_path / "log").read_text(encoding="utf-8")
    assert any("input_norm.weight" in problem for problem in _problems(config, weights))


def test_vllm_refuses_a_weight_that_it_does_not_know(tmp_path: Path) -> None:
    config = plain_config()
    weights = write_draft(tmp_path / "draft", config, 3, [("midlayer.extra_norm.weight", HIDDEN)])
    with pytest.raises(vllm_cpu.VllmError, match="extra_norm"):
        vllm_cpu.serve(MODEL, tmp_path / "draft", PROMPTS, tmp_path)
    assert any("extra_norm" in problem for problem in _problems(config, weights))


def _compare_norms(config: dict[str, Any], norms: Iterable[tuple[str, int]], folder: Path) -> None:
    weights = write_draft(folder / "draft", config, 3, norms)
    answer = vllm_cpu.serve(MODEL, folder / "draft", PROMPTS, folder)
    contract, _ = read_contract(config)
    reading, _ = reading_of(contract, "vllm", vllm_cpu.VERSION)
    assert reading is not None
    assert answer.norms == {flag: reading.runs(flag, contract) for flag in get_args(FlagName)}
    assert not [problem for problem in _problems(config, weights) if "weight" in problem]


def _problems(config: dict[str, Any], weights: list[str]) -> list[str]:
    contract, _ = read_contract(config)
    return [str(problem) for problem in contract_problems(contract, "vllm", vllm_cpu.VERSION, weights)]
