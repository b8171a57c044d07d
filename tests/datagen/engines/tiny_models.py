"""Tiny models with random weights, saved as folders that the hf engine opens; one a family of architectures.

The weights are drawn wider than a real initialisation's, so that every layer changes the states visibly.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedTokenizerFast

VOCAB = 211
LONGEST = 128

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.1,
}
_GROUPED = _SIZES | {"num_key_value_heads": 2, "head_dim": 16}
_VISION: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}


def _llama() -> Any:
    return transformers.LlamaConfig(**_GROUPED)


def _qwen3() -> Any:
    return transformers.Qwen3Config(**_GROUPED)


def _mistral() -> Any:
    return transformers.MistralConfig(**_GROUPED, sliding_window=8)


def _gemma3() -> Any:
    """Scaled embedding; every second layer sees a window of 8 tokens."""
    sizes = _GROUPED | {"num_hidden_layers": 4}
    kinds = ["sliding_attention", "full_attention"] * 2
    return transformers.Gemma3TextConfig(**sizes, sliding_window=8, layer_types=kinds)


def _gpt2() -> Any:
    """Learned positions; dropout of 0.1 in the config, which only training may use."""
    return transformers.GPT2Config(
        vocab_size=VOCAB,
        n_embd=48,
        n_layer=3,
        n_head=4,
        n_positions=LONGEST,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
    )


def _gpt_neox() -> Any:
    return transformers.GPTNeoXConfig(**_SIZES)


def _opt() -> Any:
    """The layers stand two modules below the causal model."""
    return transformers.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        ffn_dim=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        word_embed_proj_dim=48,
        max_position_embeddings=LONGEST,
        init_std=0.1,
    )


def _deepseek_sizes() -> dict[str, Any]:
    return _SIZES | {
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    }


def _deepseek_v3() -> Any:
    """Kimi-K2.5's text architecture: latent attention, routed experts after a first dense layer."""
    return transformers.DeepseekV3Config(**_deepseek_sizes())


def _qwen3_moe() -> Any:
    """Routed experts in every layer."""
    return transformers.Qwen3MoeConfig(
        **_GROUPED, moe_intermediate_size=32, num_experts=3, num_experts_per_tok=2, decoder_sparse_step=1
    )


CAUSAL: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "mistral": _mistral,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "deepseek_v3": _deepseek_v3,
    "qwen3_moe": _qwen3_moe,
}


def _kimi_k25() -> Any:
    """Known to transformers as image-text-to-text only; the vision tower is as deep as the text model."""
    return transformers.AutoConfig.for_model(
        "kimi_k25",
        text_config={"model_type": "deepseek_v3", **_deepseek_sizes()},
        vision_config=_VISION | {"num_hidden_layers": 3},
        image_token_id=VOCAB - 1,
        video_token_id=VOCAB - 2,
    )


def _llava() -> Any:
    return transformers.LlavaConfig(
        text_config={"model_type": "llama", **_GROUPED},
        vision_config={
            "model_type": "clip_vision_model",
            **_VISION,
            "num_hidden_layers": 3,
            "image_size": 28,
            "patch_size": 14,
        },
        image_token_index=VOCAB - 1,
    )


IMAGE_TEXT: dict[str, Callable[[], Any]] = {"kimi_k25": _kimi_k25, "llava": _llava}


def build(name: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """Return the model of a family with random weights from `seed`, in evaluation mode."""
    auto_class = AutoModelForCausalLM if name in CAUSAL else AutoModelForImageTextToText
    torch.manual_seed(seed)
    return auto_class.from_config((CAUSAL | IMAGE_TEXT)[name](), dtype=dtype).eval()


def save(name: str, folder: Path, seed: int = 0) -> Path:
    """Save a family's model (float32) and a tokenizer to `folder`."""
    build(name, seed=seed).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    """Save a tokenizer of as many words as the models have ids."""
    words = WordLevel({f"w{index}": index for index in range(VOCAB)}, unk_token="w0")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="w0").save_pretrained(folder)
