"""Attention of a draft's rows, a conversation at a time: causal on step 0, and each row's own later steps."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def attend(
    queries: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[int],
    window: int | None,
) -> Tensor:
    """Return what `queries` `[N, heads, D]` read: `[N, heads, D]`.

    `keys` and `values` `[N, kv_heads, D]` are those of each step until now. A row sees step 0 back to its
    conversation's first row (or over a `window` of rows, its own among them), and of later steps its own row.
    """
    sizes = list(lengths)
    split = [torch.split(one, sizes) for one in (queries, *keys, *values)]
    n_steps = len(keys)
    mixed = [
        _one(part[0], part[1 : 1 + n_steps], part[1 + n_steps :], window) for part in zip(*split, strict=True)
    ]
    return torch.cat(mixed)


def _one(queries: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], window: int | None) -> Tensor:
    group = queries.shape[1] // keys[0].shape[1]
    asked = queries.transpose(0, 1)
    first, first_values = _by_head(keys[0], group), _by_head(values[0], group)
    mask = _mask(len(queries), window, queries.device)
    if len(keys) == 1:
        causal = mask is None
        mixed = functional.scaled_dot_product_attention(
            asked[None], first[None], first_values[None], attn_mask=mask, is_causal=causal
        )
        return mixed[0].transpose(0, 1)
    if mask is None:
        mask = torch.ones(len(queries), len(queries), dtype=torch.bool, device=queries.device).tril()
    scale = queries.shape[-1] ** -0.5
    scores = (asked @ first.transpose(1, 2) * scale).masked_fill(~mask, float("-inf"))
    own = [(asked * _by_head(one, group)).sum(-1, keepdim=True) * scale for one in keys[1:]]
    shares = torch.cat([scores, *own], dim=-1).softmax(dim=-1)
    mixed = shares[..., : len(queries)] @ first_values
    for step, one in enumerate(values[1:]):
        mixed = mixed + shares[..., len(queries) + step, None] * _by_head(one, group)
    return mixed.transpose(0, 1)


def _by_head(rows: Tensor, group: int) -> Tensor:
    """Return rows `[T, kv_heads, D]` as `[heads, T, D]`, each head of keys for its group of queries."""
    return rows.transpose(0, 1).repeat_interleave(group, dim=0)


def _mask(n_rows: int, window: int | None, device: torch.device) -> Tensor | None:
    if window is None or window >= n_rows:
        return None
    everything = torch.ones(n_rows, n_rows, dtype=torch.bool, device=device)
    return everything.tril() & everything.triu(1 - window)
