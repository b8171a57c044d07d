"""vLLM's own config readers, setters and forwards against the facts that the declarations rest on."""

from typing import Any

import pytest

from tests.oracle import vllm_code
from tests.oracle.vllm_code import Runner
from tests.oracle.wheels import RELEASES

L = 30
DEFAULT = [2, L // 2, L - 3]
VERSIONS = RELEASES["vllm"]
KIMI = "KimiK25ForConditionalGeneration"


def top(ids: object) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": ids}


def nested(ids: object) -> dict[str, Any]:
    return {"eagle_config": top(ids)}


def captured(version: str, runner: Runner, architecture: str, config: dict[str, Any]) -> list[int]:
    return vllm_code.captured_boundaries(version, runner, architecture, config, L)


def runners(version: str) -> list[Runner]:
    return ["V1"] if version == "0.11.0" else ["V1", "V2"]


CASES = [
    (version, runner, architecture)
    for version in VERSIONS
    if vllm_code.is_cached(version)
    for runner in runners(version)
    for architecture in sorted(vllm_code.supported(version))
]


@pytest.mark.parametrize(("version", "runner", "architecture"), CASES)
def test_defaults_and_top_level_ids(version: str, runner: Runner, architecture: str) -> None:
    assert captured(version, runner, architecture, {}) == DEFAULT
    written = [3, 14, 26] if version != "0.11.0" else DEFAULT
    assert captured(version, runner, architecture, top([3, 14, 26])) == written
    assert captured(version, runner, architecture, top("3,14,26")) == DEFAULT


@pytest.mark.parametrize(("version", "runner", "architecture"), CASES)
def test_only_the_first_runner_reads_nested_ids(version: str, runner: Runner, architecture: str) -> None:
    reads = runner == "V1" and VERSIONS.index(version) >= VERSIONS.index("0.22.0")
    assert captured(version, runner, architecture, nested([3, 14, 26])) == ([3, 14, 26] if reads else DEFAULT)


@pytest.mark.parametrize(("version", "runner", "architecture"), [c for c in CASES if c[0] != "0.11.0"])
def test_top_level_wins_and_order_is_lost(version: str, runner: Runner, architecture: str) -> None:
    assert captured(version, runner, architecture, top([5, 6, 7]) | nested([3, 14, 26])) == [5, 6, 7]
    assert captured(version, runner, architecture, top([26, 26, 3])) == [3, 26]


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.parametrize(
    ("version", "last"), [("0.24.0", [3, 14]), ("0.25.0", [3, 14, L]), ("0.33.0", [3, 14, L])]
)
def test_the_last_boundary_of_kimi(version: str, runner: Runner, last: list[int]) -> None:
    assert captured(version, runner, KIMI, top([3, 14, L])) == last


@pytest.mark.parametrize("version", ["0.20.0", "0.25.0", "0.33.0"])
def test_embed_cannot_be_captured_from_kimi(version: str) -> None:
    with pytest.raises(TypeError):
        captured(version, "V2", KIMI, top([0, 3, 14]))


def test_embed_and_last_of_llama() -> None:
    assert captured("0.33.0", "V2", "LlamaForCausalLM", top([0, 3, L])) == [0, 3, L]
    assert captured("0.17.0", "V1", "LlamaForCausalLM", top([3, 14, L])) == [3, 14]
    with pytest.raises(TypeError):
        captured("0.17.0", "V1", "LlamaForCausalLM", top([0, 3, 14]))
