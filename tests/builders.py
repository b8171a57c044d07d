"""Small targets, schemas and samples that the tests share."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.sample_data import SampleData
from schemas.final_norm import FinalNorm, NormRecipe
from schemas.sample import prompt_id, sample_id
from schemas.schema import INPUT_IDS, LOSS_MASK, DType, Schema, TokenColumn
from schemas.target import Target, WeightsDigest


def tiny_target(n_layers: int = 4, hidden_size: int = 8, vocab_size: int = 1000) -> Target:
    """Return a target that no model is behind."""
    return Target(
        model_id="tiny",
        revision=None,
        model_type="synthetic",
        architecture="Synthetic",
        n_layers=n_layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        weights=WeightsDigest(method="synthetic", sha256="0" * 64),
        quantisation=None,
        tokenizer_sha256="1" * 64,
        chat_template_sha256=None,
    )


def tiny_schema(
    names: Sequence[str] = ("embed", "layer2", "final"),
    dtype: DType = "bfloat16",
    target: Target | None = None,
    token_columns: tuple[TokenColumn, ...] = (INPUT_IDS, LOSS_MASK),
) -> Schema:
    """Return a schema of a few narrow tensors."""
    return Schema.declare(target or tiny_target(), names, dtype, token_columns)


def tiny_norm(hidden_size: int = 8, seed: int = 0, *, bias: bool = False) -> FinalNorm:
    """Return a final norm of `tiny_target`, in bfloat16."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((2, hidden_size)) * 0.3 + 1).astype(NUMPY_DTYPES["bfloat16"])
    return FinalNorm.of(
        NormRecipe("rms_norm", 1e-5, 0.0, "before_scale"),
        "bfloat16",
        values[0].tobytes(),
        values[1].tobytes() if bias else None,
        tiny_target().weights,
    )


def random_rows(n_tokens: int, width: int, dtype: str, rng: np.random.Generator) -> NDArray[np.generic]:
    """Return finite rows `[n_tokens, width]`, with -0.0 among them."""
    rows = rng.standard_normal((n_tokens, width), dtype=np.float32)
    rows[rng.random((n_tokens, width)) < 0.05] = -0.0
    return rows.astype(NUMPY_DTYPES[dtype])


def row_norms(rows: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the L2 norm of each row, `[T]` float32."""
    wide = rows.astype(np.float32)
    norms: NDArray[np.float32] = np.sqrt((wide * wide).sum(axis=1, dtype=np.float32))
    return norms


def random_sample(schema: Schema, n_tokens: int, seed: int, conversation_id: str | None = None) -> SampleData:
    """Return a sample that fits `schema`; the same arguments give the same sample."""
    rng = np.random.default_rng([seed, n_tokens])
    ids = rng.integers(0, schema.target.vocab_size, n_tokens, dtype=np.int32)
    tokens: dict[str, NDArray[np.generic]] = {
        "input_ids": ids,
        "loss_mask": rng.integers(0, 2, n_tokens, dtype=np.uint8),
    }
    for column in schema.token_columns[2:]:
        top = schema.target.vocab_size if column.dtype == "int32" else 2
        tokens[column.name] = rng.integers(0, top, n_tokens).astype(column.dtype)
    tensors = {spec.name: random_rows(n_tokens, spec.width, spec.dtype, rng) for spec in schema.tensors}
    return SampleData(
        sample_id=sample_id(ids.tolist()),
        prompt_id=prompt_id(ids.tolist(), {"mode": "capture"}),
        conversation_id=conversation_id or f"conversation-{seed}",
        source=f"tests.jsonl:{seed}",
        tokens=tokens,
        tensors=tensors,
        norms={name: row_norms(rows) for name, rows in tensors.items()},
        text=f'[{{"content":"{seed}","role":"user"}}]',
    )
