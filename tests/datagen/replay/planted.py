"""A target, its states and a draft whose right wiring is known, since it is how they were made.

The draft's `fc` takes a third of each slot's state; the state that says what is right, one token on, is just
that through the draft's norms, and noise. So the draft is good where each slot has its own tensor, and the
less so the more slots do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from datagen.engines.weights import weights_digest
from datagen.planning.audit import audit_name, audit_schema
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.boundary import all_names
from schemas.problem import Problem
from schemas.sample import prompt_id, sample_id
from schemas.schema import Schema
from schemas.target import Target
from tests.builders import row_norms, tiny_target
from tests.datagen.replay.tiny_drafts import (
    VOCAB,
    WIDTH,
    draft_ids,
    maps,
    random_weights,
    speculators_config,
    write_draft,
)
from tests.datagen.store.real_parts import commit_samples

N_LAYERS = 6
STORED = ("embed", "layer2", "layer3", "layer5", "final")
EPS = 1e-5
NOISE = 0.2
Rows = NDArray[np.float32]
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Plant:
    """What the draft was, so to speak, trained on, and what its config says."""

    fc: tuple[str, ...] = ("layer2", "layer3", "layer5")
    target: str = "final"
    moved: int = 0
    ids: tuple[int, ...] = (2, 3, 5)
    """What the draft's config asks a server for."""
    norm_before_residual: bool = True
    noise: float = NOISE


@dataclass(frozen=True)
class Planted:
    """Where everything lies."""

    root: Path
    draft: Path
    target: Path

    @property
    def reference(self) -> str:
        return f"{self.root}/demo"


def plant(folder: Path, how: Plant | None = None, *, n: int = 12, stored: Sequence[str] = STORED) -> Planted:
    """Write target, dataset `demo` of so many conversations, its audit set and the draft."""
    how = how or Plant()
    made = Planted(folder / "data", folder / "draft", folder / "target")
    heads = write_target(made.target)
    weights = planted_weights(how, heads["lm_head"])
    config = speculators_config(
        norm_before_residual=how.norm_before_residual, eagle_aux_hidden_state_layer_ids=list(how.ids)
    )
    config["transformer_layer_config"]["rms_norm_eps"] = EPS
    write_draft(made.draft, config, weights)
    target = target_of(made.target)
    schemas = {
        "demo": Schema.declare(target, stored, "bfloat16"),
        audit_name("demo"): audit_schema(target, "bfloat16"),
    }
    for number, (name, schema) in enumerate(schemas.items()):
        dataset = Dataset.create(open_door(made.root), name, schema, exist_ok=False)
        count = n if number == 0 else 8
        samples = [sample(schema, how, heads, weights, 1000 * number + one) for one in range(count)]
        commit_samples(dataset, schema, samples)
    return made


def write_target(folder: Path) -> dict[str, Tensor]:
    """Write a small Llama whose layers nobody runs; return its embedding and lm_head, `[V, H]`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=8,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        rms_norm_eps=EPS,
        tie_word_embeddings=False,
        initializer_range=1.0,
    )
    model: Any = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    rows = {"embedding": model.get_input_embeddings(), "lm_head": model.get_output_embeddings()}
    return {name: module.weight.detach().clone() for name, module in rows.items()}


def target_of(folder: Path) -> Target:
    """Return the identity of the target in `folder`."""
    digest = weights_digest(folder)
    assert not isinstance(digest, Problem)
    small = tiny_target(n_layers=N_LAYERS, hidden_size=WIDTH, vocab_size=VOCAB)
    update = {"weights": digest, "model_type": "llama", "architecture": "LlamaForCausalLM"}
    return small.model_copy(update=update)


def planted_weights(how: Plant, lm_head: Tensor) -> dict[str, Tensor]:
    """Return a draft that lets a third of each slot through its norms, and has the target's head."""
    weights = dict(random_weights(n_slots=len(how.fc)))
    silent = ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight")
    weights |= {name: torch.zeros_like(weights[name]) for name in silent}
    weights["fc.weight"] = mixing(len(how.fc))
    weights["layers.0.hidden_norm.weight"] = torch.rand(WIDTH, generator=torch.Generator().manual_seed(5)) * 3
    weights["norm.weight"] = torch.ones(WIDTH)
    weights["lm_head.weight"] = lm_head[draft_ids()]
    return weights | maps(draft_ids())


def mixing(n_slots: int) -> Tensor:
    """Return an `fc` that takes its own share of the width from each slot."""
    fc = torch.zeros(WIDTH, n_slots * WIDTH)
    for row in range(WIDTH):
        fc[row, (row * n_slots // WIDTH) * WIDTH + row] = 1.0
    return fc


def states(
    how: Plant, heads: Mapping[str, Tensor], weights: Mapping[str, Tensor], ids: Ids, seed: int
) -> dict[str, Rows]:
    """Return every boundary `[T, H]`: each near the one before it, the target as the draft would have it."""
    rng = np.random.default_rng(seed)
    n_tokens = len(ids)

    def noise() -> Rows:
        return rng.standard_normal((n_tokens, WIDTH), dtype=np.float32)

    rows = {"embed": heads["embedding"].numpy()[ids.astype(np.int64)]}
    before = noise()
    for name in all_names(N_LAYERS)[1:-1]:
        before = 0.85 * before + 0.5 * noise()
        rows[name] = before
    rows[how.target] = _following(how, weights, rows, noise())
    if how.target != "final":
        rows["final"] = 0.5 * rows[how.target] + 0.8 * noise()
    final = torch.from_numpy(rows["final"])
    rows["final_normed"] = torch.nn.functional.rms_norm(final, (WIDTH,), eps=EPS).numpy()
    return rows


def _following(how: Plant, weights: Mapping[str, Tensor], rows: Mapping[str, Rows], noise: Rows) -> Rows:
    slots = torch.cat([torch.from_numpy(rows[name]) for name in how.fc], dim=-1)
    mixed = slots @ weights["fc.weight"].T
    if how.norm_before_residual:
        mixed = torch.nn.functional.rms_norm(mixed, (WIDTH,), weights["layers.0.hidden_norm.weight"], EPS)
    # Pair i, of state i (or the one beside it), says what stands at state i+1.
    following = np.roll(mixed.numpy(), 1 - how.moved, axis=0)
    noisy: Rows = following + how.noise * noise * following.std()
    return noisy


def sample(
    schema: Schema, how: Plant, heads: Mapping[str, Tensor], weights: Mapping[str, Tensor], seed: int
) -> SampleData:
    """Return one conversation, its second half trained."""
    rng = np.random.default_rng([7, seed])
    n_tokens = int(rng.integers(60, 90))
    ids = rng.integers(0, VOCAB, n_tokens, dtype=np.int32)
    every = states(how, heads, weights, ids, seed)
    tensors = {name: every[name].astype(ml_dtypes.bfloat16) for name in schema.names}
    mask = (np.arange(n_tokens) >= n_tokens // 3).astype(np.uint8)
    tokens: dict[str, NDArray[np.generic]] = {"input_ids": ids, "loss_mask": mask}
    for column in schema.token_columns[2:]:
        tokens[column.name] = np.zeros(n_tokens, column.dtype)
    return SampleData(
        sample_id=sample_id(ids.tolist()),
        prompt_id=prompt_id(ids.tolist(), {"mode": "capture"}),
        conversation_id=f"conversation-{seed}",
        source=f"tests.jsonl:{seed}",
        tokens=tokens,
        tensors=tensors,
        norms={name: row_norms(rows) for name, rows in tensors.items()},
        text=None,
    )
