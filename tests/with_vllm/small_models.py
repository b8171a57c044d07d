"""Small models with random weights, of sizes that vLLM's kernels for CPUs take: multiples of 32.

The weights are drawn as wide as those of `tests.datagen.engines.tiny_models`, so that every layer changes the
states visibly.
"""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from tests.datagen.engines.tiny_models import VOCAB, save_tokenizer

LONGEST = 256
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.1,
}

YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
"""The position code of DeepSeek-V3 and Kimi-K2, for a model of 256 positions."""


def _llama() -> Any:
    return transformers.LlamaConfig(**_SIZES, num_key_value_heads=2, head_dim=32)


def _qwen3_moe() -> Any:
    """Routed experts in every layer."""
    return transformers.Qwen3MoeConfig(
        **_SIZES,
        num_key_value_heads=2,
        head_dim=32,
        moe_intermediate_size=64,
        num_experts=8,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        norm_topk_prob=True,
    )


def _deepseek_v3() -> Any:
    """Kimi-K2.5's text architecture: latent attention, routed experts after a first dense layer."""
    return transformers.DeepseekV3Config(
        **_SIZES,
        num_key_value_heads=4,
        moe_intermediate_size=64,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=32,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=32,
        v_head_dim=32,
        rope_parameters=YARN,
        # Their own configs say these, and vLLM reads them; transformers has no other way and does not.
        topk_method="noaux_tc",
        scoring_func="sigmoid",
    )


FAMILIES = {"llama": _llama, "qwen3_moe": _qwen3_moe, "deepseek_v3": _deepseek_v3}


def save(family: str, folder: Path, **changes: Any) -> Path:
    """Save a family's model (float32) and a tokenizer to `folder`; `changes` are made to its config."""
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().save_pretrained(folder)
    save_tokenizer(folder)
    return folder
