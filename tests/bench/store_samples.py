"""What the store's measurements write and read: samples of a large model's width, and where to."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from datagen.store.sample_data import SampleData
from schemas.sample import prompt_id, sample_id
from schemas.schema import Schema
from tests.builders import random_sample, tiny_schema, tiny_target

N_TOKENS = 300
WIDTH = 7168
TENSORS = ("embed", "layer3", "layer31", "layer59", "final")


def wide_schema() -> Schema:
    """Return five bfloat16 tensors of a model of width 7168: 71,680 bytes a token."""
    return tiny_schema(TENSORS, target=tiny_target(n_layers=61, hidden_size=WIDTH, vocab_size=100_000))


def distinct_samples(schema: Schema, n_bytes: int, n_buffers: int = 4) -> list[SampleData]:
    """Return samples of 300 tokens, `n_bytes` in all; their tensors are `n_buffers` sets, taken in turn.

    So the sets are larger than the caches, as an engine's are, and need little memory.
    """
    buffers = [random_sample(schema, N_TOKENS, seed) for seed in range(n_buffers)]
    samples = []
    for number in range(n_bytes // (N_TOKENS * schema.token_bytes)):
        buffer = buffers[number % n_buffers]
        ids = buffer.tokens["input_ids"].astype(np.int32)
        ids[0] = number
        tokens = {**buffer.tokens, "input_ids": ids}
        prompt = prompt_id(ids.tolist(), {"mode": "capture"})
        samples.append(replace(buffer, tokens=tokens, sample_id=sample_id(ids.tolist()), prompt_id=prompt))
    return samples


@contextmanager
def bench_folder(parent: Path = Path("data")) -> Iterator[Path]:
    """Make a folder under `parent`, by default on the disk that datasets are on, and remove it after."""
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        yield Path(folder)
