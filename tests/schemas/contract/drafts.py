"""Drafts for the tests: configs as trainers write them, and the weights that go with them."""

from typing import Any

LAYER = (
    *("hidden_norm", "input_layernorm", "post_attention_layernorm"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
)


def plain(**more: Any) -> dict[str, Any]:
    """Return a config as SGLang and SpecForge have it."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 100,
        "draft_vocab_size": 40,
        "rope_theta": 10000.0,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 13, 24]},
    }
    return {**config, **more}


def speculators(model_type: str = "llama", **more: Any) -> dict[str, Any]:
    """Return a config of speculators' own format, as its trainer writes it by default."""
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "draft_vocab_size": 40,
        "norm_before_residual": True,
        "norm_before_fc": True,
        "norm_output": True,
        "fc_norm": False,
        "eagle_aux_hidden_state_layer_ids": [2, 14, 25],
        "transformer_layer_config": {
            "model_type": model_type,
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "vocab_size": 100,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    return {**config, **more}


def weights(*more: str, layer: str = "layers.0", without: tuple[str, ...] = ()) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a draft of width 8 that knows 40 of 100 tokens."""
    named: dict[str, tuple[int, ...]] = {
        "fc.weight": (8, 24),
        "norm.weight": (8,),
        "lm_head.weight": (40, 8),
        "d2t": (40,),
        "t2d": (100,),
    }
    named |= {f"{layer}.{name}.weight": (8,) for name in LAYER} | dict.fromkeys(more, (24,))
    return {name: shape for name, shape in named.items() if name not in without}
