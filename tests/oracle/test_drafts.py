"""What each server's draft model reads of a config and loads of a checkpoint."""

import pytest

from tests.oracle.drafts_code import draft_model, flags_read, sglang_loads, vllm_passes_over
from tests.oracle.wheels import RELEASES

OLD = {"target_hidden_size", "draft_vocab_size"}
SGLANG_0_5_12 = OLD | {
    "fc_norm",
    "use_aux_norm",
    "norm_output",
    "num_aux_hidden_states",
    "eagle_aux_hidden_state_layer_ids",
}


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.4.10", OLD),
        ("0.5.11", OLD),
        ("0.5.12.post1", SGLANG_0_5_12),
        ("0.5.16", SGLANG_0_5_12),
        ("0.5.17", SGLANG_0_5_12 | {"norm_before_fc"}),
        ("0.5.23", SGLANG_0_5_12 | {"norm_before_fc"}),
    ],
)
def test_sglang_flags(version: str, flags: set[str]) -> None:
    assert flags_read("sglang", version) == flags


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.11.0", {"norm_before_residual"}),
        ("0.20.0", {"norm_before_residual", "norm_before_fc", "use_aux_hidden_state"}),
        (
            "0.33.0",
            {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_hidden_state"},
        ),
    ],
)
def test_vllm_norm_flags(version: str, known: set[str]) -> None:
    norms = {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_hidden_state"}
    assert flags_read("vllm", version) & norms == known


@pytest.mark.parametrize("version", [v for v in RELEASES["sglang"] if v not in ("0.4.8",)])
def test_sglang_passes_over_unknown_weights_in_silence(version: str) -> None:
    parameters = ["model.fc.weight", "lm_head.weight"]
    weights = ["fc.weight", "lm_head.weight", "input_norm.weight", "verifier_norm.weight", "t2d"]
    assert sglang_loads(version, parameters, weights) == set(parameters)


def test_vllm_passes_over_input_norm_when_its_flag_is_off() -> None:
    assert "input_norm." in vllm_passes_over("0.33.0")
    assert "input_norm." in vllm_passes_over("0.20.0")
    assert "input_norm." not in vllm_passes_over("0.11.0")


def test_kimi_drafts_of_sglang_know_no_norm_before_fc() -> None:
    assert draft_model("sglang", "0.5.23", "kimi_k25_eagle3").is_file()
    assert "norm_before_fc" not in flags_read("sglang", "0.5.23", "kimi_k25_eagle3")
