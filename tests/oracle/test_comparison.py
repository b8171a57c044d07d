"""Over generated configs, no engine keeps the order that a draft's config asks for."""

import pytest
from hypothesis import given, settings

from tests.oracle import sglang_code, vllm_code
from tests.oracle.comparison import MODEL_TYPES, Case, cases, sglang, vllm


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.23"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM"])
@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_sglang_feeds_each_boundary_once_and_ascending(version: str, architecture: str, case: Case) -> None:
    fed = sglang(version, architecture, case).boundaries
    assert list(fed) == sorted(set(fed))
    assert all(0 <= boundary <= case.n_layers for boundary in fed)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "DeepseekV3ForCausalLM"])
@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_vllm_runners_differ_by_nested_ids_alone(architecture: str, case: Case) -> None:
    first, second = (vllm("0.33.0", runner, architecture, case) for runner in ("V1", "V2"))
    assert list(first.boundaries) == sorted(set(first.boundaries))
    if "eagle_config" not in case.config or "eagle_aux_hidden_state_layer_ids" in case.config:
        assert first == second


def test_every_architecture_has_a_model_type() -> None:
    assert set(vllm_code.TARGETS) <= set(MODEL_TYPES)
    assert set(MODEL_TYPES) <= set(sglang_code.TARGETS)
