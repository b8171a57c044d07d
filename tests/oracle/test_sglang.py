"""SGLang's own setters and forwards against the facts that the declarations rest on."""

from typing import Any

import pytest

from tests.oracle import sglang_code
from tests.oracle.sglang_flags import Flags, effective
from tests.oracle.wheels import RELEASES

VERSIONS = RELEASES["sglang"]
L = 30
DEEPSEEK = [
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK25ForConditionalGeneration",
]
PLAIN = [
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Glm4MoeForCausalLM",
]
SHIFTED_DEFAULT = "MiniMaxM3SparseForConditionalGeneration"
# Releases and architectures whose forward captures something that is no boundary, or nothing.
BROKEN = {("Gemma3ForCausalLM", version) for version in ("0.5.17", "0.5.18", "0.5.23")} | {
    ("MiniMaxM3SparseForCausalLM", version) for version in ("0.5.16", "0.5.17")
}
SERVED = [
    (version, architecture)
    for version in VERSIONS
    for architecture in sglang_code.TARGETS
    if sglang_code.is_cached(version)
    and architecture in sglang_code.supported(version)
    and (architecture, version) not in BROKEN
]


def nested(ids: object) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}


def captured(version: str, architecture: str, config: dict[str, Any]) -> list[int]:
    return sglang_code.captured_boundaries(version, architecture, config, L)


@pytest.mark.parametrize(("version", "architecture"), SERVED)
def test_the_default_is_unshifted_but_for_one_model(version: str, architecture: str) -> None:
    expected = [3, L // 2 + 1, L - 2] if architecture == SHIFTED_DEFAULT else [2, L // 2, L - 3]
    assert captured(version, architecture, {}) == expected


@pytest.mark.parametrize(("version", "architecture"), [pair for pair in SERVED if pair[0] != "0.4.8"])
def test_ids_are_layer_outputs_unless_the_model_guesses(version: str, architecture: str) -> None:
    guesses = architecture in [*DEEPSEEK, "Glm4MoeLiteForCausalLM"] and _at_least(version, "0.5.13")
    assert captured(version, architecture, nested([1, 14, 26])) == [2, 15, 27]
    assert captured(version, architecture, nested([2, 14, 26])) == ([2, 14, 26] if guesses else [3, 15, 27])


def test_no_ids_are_read_before_0_4_9() -> None:
    assert captured("0.4.8", "LlamaForCausalLM", nested([5, 6, 7])) == [2, L // 2, L - 3]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v != "0.4.8"])
def test_only_the_nested_key_is_read(version: str) -> None:
    top = {"eagle_aux_hidden_state_layer_ids": [5, 6, 7]}
    assert captured(version, "LlamaForCausalLM", top) == [2, L // 2, L - 3]
    assert captured(version, "LlamaForCausalLM", top | nested([9, 10, 11])) == [10, 11, 12]


@pytest.mark.parametrize("config", [{"eagle_config": None}, {"eagle_config": []}, {"eagle_config": {}}])
def test_a_malformed_config_is_the_default_in_silence(config: dict[str, Any]) -> None:
    assert captured("0.5.23", "LlamaForCausalLM", config) == [2, L // 2, L - 3]


def test_aux_states_can_be_turned_off() -> None:
    assert captured("0.5.23", "LlamaForCausalLM", {"eagle_config": {"use_aux_hidden_state": False}}) == []


@pytest.mark.parametrize(("version", "verbatim"), [("0.5.16", False), ("0.5.17", True), ("0.5.23", True)])
def test_gpt_oss_takes_ids_as_they_are_when_the_last_is_the_depth(version: str, verbatim: bool) -> None:
    assert captured(version, "GptOssForCausalLM", nested([2, 15, L])) == ([2, 15, L] if verbatim else [3, 16])


@pytest.mark.parametrize("architecture", DEEPSEEK)
def test_embed_of_deepseek_and_kimi(architecture: str) -> None:
    assert captured("0.5.23", architecture, nested([0, 3, 14])) == [0, 3, 14]


def test_embed_of_llama_needs_the_id_minus_one() -> None:
    assert captured("0.5.23", "LlamaForCausalLM", nested([-1, 3, 14])) == [0, 4, 15]
    with pytest.raises(TypeError):
        captured("0.5.18", "LlamaForCausalLM", nested([-1, 3, 14]))


def test_the_last_boundary_is_dropped_or_refused() -> None:
    assert captured("0.5.23", "LlamaForCausalLM", nested([2, 15, L - 1])) == [3, 16]
    with pytest.raises(IndexError):
        captured("0.5.23", "Qwen3MoeForCausalLM", nested([2, 15, L - 1]))
    with pytest.raises(RuntimeError, match="captured 2 of 3"):
        captured("0.5.23", "KimiK25ForConditionalGeneration", nested([2, 15, L]))


@pytest.mark.parametrize("architecture", PLAIN)
def test_order_and_doubles_are_lost(architecture: str) -> None:
    assert captured("0.5.23", architecture, nested([26, 26, 14])) == [15, 27]


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_gemma3_hands_over_half_of_a_sum(version: str) -> None:
    with pytest.raises(ValueError, match="no boundary"):
        captured(version, "Gemma3ForCausalLM", {})


@pytest.mark.parametrize("version", ["0.5.16", "0.5.17"])
def test_minimax_m3_captured_nothing_at_first(version: str) -> None:
    assert captured(version, "MiniMaxM3SparseForCausalLM", nested([2, 14, 26])) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("steps", [1, 3, 15])
def test_top_k_one_overrides_the_draft_tokens(version: str, steps: int) -> None:
    ran = effective(version, Flags(steps, 1, 16), "LlamaForCausalLM")
    assert ran == Flags(steps, 1, steps + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tree_keeps_its_draft_tokens(version: str) -> None:
    assert effective(version, Flags(3, 4, 16), "LlamaForCausalLM") == Flags(3, 4, 16)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_flags_the_architecture_decides(version: str) -> None:
    assert effective(version, Flags(), "LlamaForCausalLM") == Flags(5, 4, 8)
    assert effective(version, Flags(), "DeepseekV3ForCausalLM").topk is not None


def test_a_part_of_the_flags_is_refused() -> None:
    with pytest.raises(AssertionError):
        effective("0.5.23", Flags(draft_tokens=16), "LlamaForCausalLM")


def _at_least(version: str, first: str) -> bool:
    return VERSIONS.index(version) >= VERSIONS.index(first)
