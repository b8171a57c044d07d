"""The forward pass of an EAGLE-3 draft on whole conversations, step by step as its trainers unroll it.

Rows of several conversations lie behind one another, so that every matrix product is one; attention alone
is taken a conversation at a time. Step 0 looks back on all earlier rows of its conversation; each later step
sees those keys of step 0, and of the steps after it only its own row's (the mask of speculators'
`extend_dense_mask_for_draft_tokens`, SpecForge's `cache_hidden`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional
from transformers.activations import ACT2FN

from datagen.replay.attention import attend
from datagen.replay.checkpoint import DraftCheckpoint
from datagen.replay.errors import ReplayError
from datagen.replay.flags import Flags
from datagen.replay.rotary import Rotary, turned
from schemas.contract.shown import shown
from schemas.problem import Problem


@dataclass(frozen=True)
class DraftOutput:
    """What one step of a draft makes of N rows."""

    logits: Tensor
    """`[R, D]`, of the rows that were asked for (all N where none were named)."""
    hidden: Tensor
    """`[N, H]`, what the next step takes in place of the projected states."""
    lengths: tuple[int, ...]
    """Rows of each conversation; their sum is N."""
    keys: "tuple[_Seen, ...]"
    """Keys and values of each layer, of this step and of those before it."""


class _Seen(NamedTuple):
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class Draft:
    """A draft whose flags can be changed without loading its weights again."""

    def __init__(
        self, checkpoint: DraftCheckpoint, weights: dict[str, Tensor], flags: Flags, rotary: Rotary
    ) -> None:
        """Keep what `of` found; use that."""
        self.checkpoint = checkpoint
        self.flags = flags
        self.sizes = checkpoint.sizes
        self._weights = weights
        self._rotary = rotary
        self._activation = ACT2FN[self.sizes.activation]

    @classmethod
    def of(
        cls,
        checkpoint: DraftCheckpoint,
        target_embedding: Tensor,
        *,
        target_lm_head: Tensor | None = None,
        flags: Flags | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Return the draft of `checkpoint`, ready to run in `dtype`.

        `target_embedding` `[V, H]` is used where the checkpoint has no `embed_tokens`, the rows of
        `target_lm_head` `[V, H]` that `t2d` marks where it has no `lm_head`. `flags` default to what the
        config says. Raises `ReplayError` where a width or a vocabulary does not fit.
        """
        sizes = checkpoint.sizes
        weights = dict(checkpoint.weights)
        problems = []
        if "embed_tokens.weight" not in weights:
            weights["embed_tokens.weight"] = target_embedding
            problems += _unfit("embed", target_embedding, sizes.vocab_size, sizes.hidden_size)
        if "lm_head.weight" not in weights:
            if target_lm_head is None:
                problems.append(_headless())
            else:
                problems += _unfit("lm_head", target_lm_head, sizes.vocab_size, sizes.hidden_size)
                if not problems:
                    weights["lm_head.weight"] = target_lm_head[checkpoint.target_ids]
        if problems:
            raise ReplayError("the draft does not fit the target", problems)
        wanted = flags or checkpoint.flags
        ready = {name: weight.to(dtype) for name, weight in weights.items()}
        return cls(checkpoint, ready, wanted, _rotary(checkpoint, wanted))

    def with_flags(self, flags: Flags) -> "Draft":
        """Return the same draft run in another way; the weights are shared."""
        rotary = self._rotary if flags.rope == self.flags.rope else _rotary(self.checkpoint, flags)
        return Draft(self.checkpoint, self._weights, flags, rotary)

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        states: Tensor,
        positions: Tensor,
        *,
        lengths: Sequence[int] | None = None,
        rows: Tensor | None = None,
    ) -> DraftOutput:
        """Run step 0: token `ids[i]` beside the target's states `states[i]` of the token before it.

        `ids` `[N]` and `positions` `[N]` are integers, `states` `[N, K*H]` is the `fc` input in slot order.
        `lengths` are the rows of each conversation (one of N rows where it is not given), `rows` picks those
        that get logits: a bool mask `[N]` or indices. Raises `ReplayError` for shapes that do not fit.
        """
        parts = self._parts(ids, states, positions, lengths)
        return self._run(ids, self.project(states), positions, parts, (), rows)

    @torch.inference_mode()
    def step(
        self, before: DraftOutput, ids: Tensor, positions: Tensor, *, rows: Tensor | None = None
    ) -> DraftOutput:
        """Run the step after `before`, fed with its hidden: `ids[i]` `[N]` is the true token one further on.

        `positions` `[N]` are those of this step, one more than those of the step before.
        """
        self._parts(ids, before.hidden, positions, before.lengths, width=self.sizes.hidden_size)
        return self._run(ids, before.hidden, positions, before.lengths, before.keys, rows)

    def chain(
        self,
        ids: Tensor,
        states: Tensor,
        positions: Tensor,
        n_steps: int,
        *,
        lengths: Sequence[int] | None = None,
        rows: Tensor | None = None,
    ) -> Iterator[DraftOutput]:
        """Yield `n_steps` teacher-forced steps: step s reads the true token s further on, and position + s.

        The last s rows of a conversation have no such token at step s: they read token 0, as speculators' own
        steps do, and their logits mean nothing.
        """
        output = self.forward(ids, states, positions, lengths=lengths, rows=rows)
        yield output
        for number in range(1, n_steps):
            shifted = torch.cat([_shifted(part, number) for part in torch.split(ids, list(output.lengths))])
            output = self.step(output, shifted, positions + number, rows=rows)
            yield output

    @torch.inference_mode()
    def project(self, states: Tensor) -> Tensor:
        """Return `fc` of the states `[N, K*H]`, with the norms before it that the flags ask for: `[N, H]`."""
        rows = states.to(self._weights["fc.weight"].dtype)
        if self.flags.norm_before_fc:
            rows = self._norm(rows, "input_norm")
        if self.flags.fc_norm:
            chunks = torch.split(rows, self.sizes.slot_width, dim=-1)
            rows = torch.cat([self._norm(one, f"fc_norm.{slot}") for slot, one in enumerate(chunks)], dim=-1)
        return self._linear(rows, "fc")

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits `[R, D]` of states `[R, H]` that were normed as the flags ask."""
        return self._linear(hidden, "lm_head")

    def _run(
        self,
        ids: Tensor,
        hidden: Tensor,
        positions: Tensor,
        lengths: tuple[int, ...],
        before: tuple[_Seen, ...],
        rows: Tensor | None,
    ) -> DraftOutput:
        tables = self._rotary.tables(positions, hidden.dtype)
        seen = []
        for layer in range(self.sizes.n_layers):
            past = before[layer] if before else _Seen((), ())
            residual, normed = self._entry(layer, ids, hidden)
            mixed, now = self._attention(layer, normed, tables, lengths, past)
            hidden = residual + mixed
            hidden = hidden + self._mlp(layer, self._norm(hidden, f"layers.{layer}.post_attention_layernorm"))
            seen.append(now)
        wants_norm = self.flags.head_norm or self.flags.norm_output
        normed = self._norm(hidden, "norm") if wants_norm else hidden
        source = normed if self.flags.head_norm else hidden
        logits = self.head(source if rows is None else source[rows])
        fed_back = normed if self.flags.norm_output else hidden
        return DraftOutput(logits, fed_back, lengths, tuple(seen))

    def _entry(self, layer: int, ids: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a layer's residual stream starts from, and what its attention reads."""
        if layer:
            return hidden, self._norm(hidden, f"layers.{layer}.input_layernorm")
        embedded = self._weights["embed_tokens.weight"].index_select(0, ids)
        normed = self._norm(hidden, "layers.0.hidden_norm")
        both = torch.cat((self._norm(embedded, "layers.0.input_layernorm"), normed), dim=-1)
        return (normed if self.flags.norm_before_residual else hidden), both

    def _attention(
        self,
        layer: int,
        rows: Tensor,
        tables: tuple[Tensor, Tensor],
        lengths: tuple[int, ...],
        past: _Seen,
    ) -> tuple[Tensor, _Seen]:
        name, sizes = f"layers.{layer}.self_attn", self.sizes
        queries = self._linear(rows, f"{name}.q_proj").view(-1, sizes.n_heads, sizes.head_dim)
        keys = self._linear(rows, f"{name}.k_proj").view(-1, sizes.n_kv_heads, sizes.head_dim)
        values = self._linear(rows, f"{name}.v_proj").view(-1, sizes.n_kv_heads, sizes.head_dim)
        if f"{name}.q_norm.weight" in self._weights:
            queries, keys = self._norm(queries, f"{name}.q_norm"), self._norm(keys, f"{name}.k_norm")
        now = _Seen((*past.keys, turned(keys, *tables)), (*past.values, values))
        window = self.flags.window if sizes.windowed[layer] else None
        mixed = attend(turned(queries, *tables), now.keys, now.values, lengths, window)
        return self._linear(mixed.flatten(-2), f"{name}.o_proj"), now

    def _mlp(self, layer: int, rows: Tensor) -> Tensor:
        name = f"layers.{layer}.mlp"
        gated: Tensor = self._activation(self._linear(rows, f"{name}.gate_proj"))
        return self._linear(gated * self._linear(rows, f"{name}.up_proj"), f"{name}.down_proj")

    def _linear(self, rows: Tensor, name: str) -> Tensor:
        return functional.linear(rows, self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias"))

    def _norm(self, rows: Tensor, name: str) -> Tensor:
        weight = self._weights.get(f"{name}.weight")
        return functional.rms_norm(rows, rows.shape[-1:], weight, self.sizes.eps)

    def _parts(
        self,
        ids: Tensor,
        states: Tensor,
        positions: Tensor,
        lengths: Sequence[int] | None,
        width: int | None = None,
    ) -> tuple[int, ...]:
        parts = tuple(lengths) if lengths is not None else (len(ids),)
        wanted = (len(ids), width or self.checkpoint.n_slots * self.sizes.slot_width)
        problems = []
        if tuple(states.shape) != wanted:
            problems.append(_misfit("states", list(wanted), list(states.shape)))
        if positions.shape != ids.shape:
            problems.append(_misfit("positions", list(ids.shape), list(positions.shape)))
        if sum(parts) != len(ids) or any(length < 1 for length in parts):
            problems.append(_misfit("lengths", f"positive numbers that add up to {len(ids)}", parts))
        if problems:
            raise ReplayError("the draft cannot read these rows", problems)
        return parts


def _shifted(ids: Tensor, by: int) -> Tensor:
    return functional.pad(ids[by:], (0, min(by, len(ids))))


def _rotary(checkpoint: DraftCheckpoint, flags: Flags) -> Rotary:
    try:
        return Rotary(checkpoint.sizes, flags.rope)
    except (ValueError, KeyError, TypeError) as error:
        problem = Problem(where="rope", kind="rope", message=f"expected a RoPE of transformers, got {error}")
        raise ReplayError("the draft's rotary embedding is not understood", [problem]) from error


def _misfit(where: str, expected: object, got: object) -> Problem:
    return Problem(
        where=where, kind="shape", message=f"expected the shape {shown(expected)}, got {shown(got)}"
    )


def _unfit(where: str, weight: Tensor, vocab_size: int, width: int) -> list[Problem]:
    # Models pad their vocabulary: rows beyond it are no token's.
    if weight.ndim == 2 and len(weight) >= vocab_size and weight.shape[1] == width:
        return []
    return [
        Problem(
            where=where,
            kind="shape",
            message=f"expected at least {vocab_size} rows of {width} from the target, got "
            f"{list(weight.shape)}",
            repair="give the target that the draft was trained for",
        )
    ]


def _headless() -> Problem:
    return Problem(
        where="lm_head.weight",
        kind="weight_missing",
        message="expected lm_head.weight in the draft's checkpoint, or the target's lm_head, got neither",
        repair="give the target model too, if the draft was trained with its lm_head",
    )
