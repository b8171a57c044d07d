"""Rotary embeddings of a draft: transformers' own tables for the RoPE that its flags name."""

from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from datagen.replay.sizes import Sizes
from schemas.contract import Rope


class Rotary:
    """cos and sin by position, and what turns a head's rows by them."""

    def __init__(self, sizes: Sizes, rope: Rope) -> None:
        """Make the tables; raises `ValueError` or `KeyError` for a scaling that transformers lacks."""
        parameters: dict[str, Any] = {"rope_type": "default", **rope.scaling}
        parameters["rope_theta"] = rope.theta or 10000.0
        for key, value in parameters.items():
            if isinstance(value, tuple):
                parameters[key] = list(value)
        config = LlamaConfig(
            hidden_size=sizes.hidden_size,
            num_attention_heads=sizes.n_heads,
            num_key_value_heads=sizes.n_kv_heads,
            head_dim=sizes.head_dim,
            max_position_embeddings=sizes.max_positions,
            rope_parameters=parameters,
        )
        self._tables = LlamaRotaryEmbedding(config)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin `[N, R]` of the positions `[N]`."""
        cos, sin = self._tables(torch.empty(0, dtype=dtype), positions[None])
        return cos[0], sin[0]


def turned(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `rows` `[N, heads, D]` turned; channels beyond the tables' width stay as they are."""
    width = cos.shape[-1]
    part, rest = rows[..., :width], rows[..., width:]
    first, second = part.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = part * cos + torch.cat((-second, first), dim=-1) * sin
    return rotated if not rest.shape[-1] else torch.cat((rotated, rest), dim=-1)
