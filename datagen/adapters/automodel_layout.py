"""NeMo Automodel's EAGLE-3 cache on disk: its manifest, and stacks of samples padded to one length S.

    manifest.json                    format_version 2: sizes, aux_layer_ids, selected_token_ids (the D tokens
                                     of the draft), target_probs_topk
    shard-000000.safetensors         shard_size samples, of the last one fewer: input_ids, attention_mask and
                                     loss_mask int64 [n, S]; aux_hidden_states [n, S, 3H]; position_mask bool
                                     [n, S, 1]; target_probs [n, S, D], or the largest k of them, which sum to
                                     1: target_probs_values [n, S, k], target_probs_indices int32 [n, S, k]
    target_embeddings.safetensors    weight float32 [V, H], the target's table
    strata_first_tokens.safetensors  ours: each sample's first token and mask, which the shift drops

Beside state i stand token i+1, its loss mask, and the target's probabilities for token i+2: `input_ids`,
`loss_mask` and the logits were moved one to the left, the attention mask was not. A layer id is what that
layer (from 0) writes. Source: `eagle3_cache.py`, `precompute_eagle3.py` and `target.py` of release 0.7.0.
"""

import json
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

EMBEDDINGS = "target_embeddings.safetensors"
FIRST_TOKENS = "strata_first_tokens.safetensors"
VERSION = 2
N_LAYERS = 3
"""How many layers it captures: no more and no fewer."""
SAFETENSORS_DTYPES: Mapping[str, str] = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
CACHE_DTYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""As the manifest names a dtype."""
ITEM_BYTES: Mapping[str, int] = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "BOOL": 1}


class Field(NamedTuple):
    """One tensor of a shard: `[n, S, *rest]`."""

    dtype: str
    rest: tuple[int, ...] = ()


def shard_fields(dtype: str, hidden_size: int, draft_size: int, top_k: int | None) -> dict[str, Field]:
    """Return a shard's tensors in the order in which they are written; `dtype` as safetensors names it."""
    fields = {name: Field("I64") for name in ("input_ids", "attention_mask", "loss_mask")}
    fields["aux_hidden_states"] = Field(dtype, (N_LAYERS * hidden_size,))
    if top_k is None:
        fields["target_probs"] = Field(dtype, (draft_size,))
    else:
        fields["target_probs_indices"] = Field("I32", (top_k,))
        fields["target_probs_values"] = Field(dtype, (top_k,))
    fields["position_mask"] = Field("BOOL", (1,))
    return fields


def field_bytes(field: Field) -> int:
    """Return the bytes that one token takes.

    >>> field_bytes(Field("BF16", (24,)))
    48
    """
    return prod(field.rest) * ITEM_BYTES[field.dtype]


def kept_probs(top_k: int | None, draft_size: int) -> int | None:
    """Return how many probabilities of a token are kept; `None`: all of them.

    >>> kept_probs(64, 8192), kept_probs(0, 8192), kept_probs(8192, 8192)
    (64, None, None)
    """
    return top_k if top_k is not None and 0 < top_k < draft_size else None


def header(fields: Mapping[str, Field], *leading: int) -> bytes:
    """Return the head of a file of tensors `[*leading, *rest]`: what lies where, padded to 8 bytes."""
    head, start = {}, 0
    for name, field in fields.items():
        end = start + prod(leading) * field_bytes(field)
        shape = [*leading, *field.rest]
        head[name] = {"dtype": field.dtype, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def shard_name(number: int) -> str:
    """Return a shard's file name.

    >>> shard_name(3)
    'shard-000003.safetensors'
    """
    return f"shard-{number:06d}.safetensors"
