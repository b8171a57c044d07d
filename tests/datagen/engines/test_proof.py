"""A structure that cannot be proven is refused; each test spoils one thing that the proof is about."""

from typing import Any

import pytest
import torch
from torch import nn

from datagen.engines.errors import OpeningError
from datagen.engines.layers import find_decoder
from datagen.engines.proof import prove
from tests.datagen.engines.tiny_models import CAUSAL, build


def refusal(model: Any, dtype: torch.dtype = torch.float32) -> str:
    with pytest.raises(OpeningError) as caught:
        prove(model, dtype)
    return str(caught.value)


@pytest.mark.parametrize("family", CAUSAL)
def test_finds_layers_norm_and_head(family: str) -> None:
    model = build(family)
    anatomy = prove(model, torch.float32)
    assert len(anatomy.decoder.layers) == model.config.num_hidden_layers
    assert "norm" in type(anatomy.norm).__name__.lower()
    assert anatomy.norm not in set(anatomy.decoder.layers.modules())
    assert anatomy.head is model.get_output_embeddings()


def test_a_list_of_experts_is_not_the_list_of_layers() -> None:
    model = build("llama")
    model.model.layers[1].experts = nn.ModuleList(nn.Identity() for _ in range(3))
    assert find_decoder(model).path == "model.layers"


def test_a_vision_tower_of_the_same_depth_is_not_the_decoder() -> None:
    assert "language_model" in find_decoder(build("kimi_k25")).path


def test_no_list_of_that_length() -> None:
    model = build("llama")
    model.config.num_hidden_layers = 7
    assert "expected one list of 7 decoder layers in LlamaForCausalLM, got none" in refusal(model)


def test_two_lists_of_that_length() -> None:
    model = build("llama")
    model.model.others = nn.ModuleList(nn.Identity() for _ in range(3))
    assert "got model.layers, model.others" in refusal(model)


def test_no_final_norm() -> None:
    """As the smallest OPT has it: the body's output is the last layer's."""
    model = build("opt")
    model.model.decoder.final_layer_norm = None
    assert "final norm: expected a module between the last layer and the body's output" in refusal(model)


def test_another_dtype_than_was_asked_for() -> None:
    message = refusal(build("llama"), torch.bfloat16)
    assert "embed: expected torch.bfloat16 of width 48, got torch.float32" in message
    assert "final_normed: expected torch.bfloat16" in message


def test_a_head_that_is_not_the_models_own() -> None:
    model = build("llama")
    other = build("llama", seed=1).lm_head
    model.get_output_embeddings = lambda: other
    assert "lm_head: expected lm_head(norm(final)) to choose as the model does" in refusal(model)


@pytest.mark.parametrize("family", ["llama", "gemma3", "deepseek_v3"])
def test_attention_that_sees_later_tokens(family: str) -> None:
    model = build(family)
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    model.config.is_causal = False
    assert "attention: expected states that no later token changes" in refusal(model)


def test_attention_that_sees_later_tokens_in_bfloat16() -> None:
    model = build("llama", torch.bfloat16)
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    model.config.is_causal = False
    assert "attention: expected states that no later token changes" in refusal(model, torch.bfloat16)


def test_a_layer_that_is_run_twice() -> None:
    model = build("llama")
    model.model.layers[1] = model.model.layers[0]
    assert "expected to be run once a forward, got a second time" in refusal(model)


def test_a_boundary_that_a_later_layer_writes_into() -> None:
    model = build("llama")

    def spoil(_module: Any, args: Any) -> None:
        args[0].mul_(2)

    model.model.layers[2].register_forward_pre_hook(spoil)
    assert "layer2: expected the model's hidden_states[2], got other values" in refusal(model)
