"""Small EAGLE-3 drafts with random weights, written as their makers write them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB, DRAFT_VOCAB, SLOTS = 32, 48, 4, 2, 8, 96, 40, 3


def body_config(model_type: str = "llama") -> dict[str, Any]:
    """Return the decoder part of a config."""
    return {
        "model_type": model_type,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    }


def speculators_config(model_type: str = "llama", **top: Any) -> dict[str, Any]:
    """Return a config of speculators' format."""
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        "norm_before_residual": False,
        "transformer_layer_config": body_config(model_type),
        **top,
    }


def plain_config(**top: Any) -> dict[str, Any]:
    """Return a config as SpecForge writes it and SGLang reads it."""
    return {
        **body_config(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        **top,
    }


def draft_ids(seed: int = 0) -> Tensor:
    """Return the target ids that such a draft knows, ascending: int64 `[D]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values


def random_weights(model_type: str = "llama", n_slots: int = SLOTS, seed: int = 0) -> dict[str, Tensor]:
    """Return weights by canonical name, with the maps; norms' weights are far from one."""
    generator = torch.Generator().manual_seed(seed)
    layer = "layers.0"
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (WIDTH, n_slots * WIDTH),
        "norm": (WIDTH,),
        f"{layer}.hidden_norm": (WIDTH,),
        f"{layer}.input_layernorm": (WIDTH,),
        f"{layer}.post_attention_layernorm": (WIDTH,),
        f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, 2 * WIDTH),
        f"{layer}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, 2 * WIDTH),
        f"{layer}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, 2 * WIDTH),
        f"{layer}.self_attn.o_proj": (WIDTH, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj": (INNER, WIDTH),
        f"{layer}.mlp.up_proj": (INNER, WIDTH),
        f"{layer}.mlp.down_proj": (WIDTH, INNER),
        "lm_head": (DRAFT_VOCAB, WIDTH),
    }
    if model_type == "qwen3":
        shapes |= {f"{layer}.self_attn.{one}_norm": (HEAD_DIM,) for one in "qk"}
    weights = {
        f"{name}.weight": (0.3 if len(shape) == 2 else 1.0) * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }
    return weights | maps(draft_ids())


def maps(ids: Tensor, vocab_size: int = VOCAB) -> dict[str, Tensor]:
    """Return `d2t` and `t2d` of a draft that knows these target ids."""
    marks = torch.zeros(vocab_size, dtype=torch.bool)
    marks[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": marks}


def fc_norms(n_slots: int = SLOTS, seed: int = 1) -> dict[str, Tensor]:
    """Return a norm for each slot."""
    generator = torch.Generator().manual_seed(seed)
    return {f"fc_norm.{slot}.weight": torch.randn(WIDTH, generator=generator) for slot in range(n_slots)}


def input_norm(n_slots: int = SLOTS, seed: int = 1) -> dict[str, Tensor]:
    """Return a norm for the whole `fc` input."""
    generator = torch.Generator().manual_seed(seed)
    return {"input_norm.weight": torch.randn(n_slots * WIDTH, generator=generator)}


def random_embedding(seed: int = 2) -> Tensor:
    """Return the rows `[V, H]` of a target."""
    return torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(seed))


def write_draft(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Path:
    """Write a draft's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(dict(weights), folder / "model.safetensors")
    return folder


def renamed(
    weights: Mapping[str, Tensor], old: str = "layers.0.", new: str = "midlayer."
) -> dict[str, Tensor]:
    """Return weights under the names of SpecForge."""
    return {name.replace(old, new): weight for name, weight in weights.items()}
