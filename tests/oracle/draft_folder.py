"""A small EAGLE-3 draft for the model of `make assets`, with random weights, as a folder for a server."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from deploy.demo.model import MODEL


def plain_config() -> dict[str, Any]:
    """The config of such a draft, without a word on layers or norms."""
    target = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    kept = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    same = ("vocab_size", "hidden_act", "rope_parameters", "max_position_embeddings")
    return {name: target[name] for name in (*kept, *same)} | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }


def speculators_config() -> dict[str, Any]:
    """The same in speculators' format."""
    plain = plain_config()
    of_speculators = ("architectures", "draft_vocab_size")
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": plain["draft_vocab_size"],
        "transformer_layer_config": {
            name: value for name, value in plain.items() if name not in of_speculators
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 2}],
            "verifier": {"name_or_path": str(MODEL), "architectures": ["LlamaForCausalLM"]},
        },
    }


def write_draft(
    folder: Path, config: dict[str, Any], n_slots: int, norms: Iterable[tuple[str, int]] = ()
) -> list[str]:
    """Write a draft whose input layer takes `n_slots` tensors, and return the names of its weights.

    `norms` are further weights, by name and width.
    """
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plain = plain_config()
    hidden, inner = plain["hidden_size"], plain["intermediate_size"]
    keys = plain["num_key_value_heads"] * plain["head_dim"]
    shapes = {
        "fc": (hidden, n_slots * hidden),
        "midlayer.self_attn.q_proj": (hidden, 2 * hidden),
        "midlayer.self_attn.k_proj": (keys, 2 * hidden),
        "midlayer.self_attn.v_proj": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj": (hidden, hidden),
        "midlayer.mlp.gate_proj": (inner, hidden),
        "midlayer.mlp.up_proj": (inner, hidden),
        "midlayer.mlp.down_proj": (hidden, inner),
        "lm_head": (plain["draft_vocab_size"], hidden),
    }
    random = torch.Generator().manual_seed(0)
    weights = {
        f"{name}.weight": 0.02 * torch.randn(shape, generator=random) for name, shape in shapes.items()
    }
    own = ["midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm", "norm"]
    for name, width in [*((f"{norm}.weight", hidden) for norm in own), *norms]:
        weights[name] = torch.ones(width)
    weights["d2t"] = torch.zeros(plain["draft_vocab_size"], dtype=torch.long)
    save_file(weights, folder / "model.safetensors")
    return list(weights)
