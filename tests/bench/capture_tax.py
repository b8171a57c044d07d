"""What capture costs: the hf engine's tokens/s over those of the same batches through the bare model.

The bare model is transformers' own base model: no hooks, no copies, no norms, no lm_head. SmolLM2 in
bfloat16, batches of 8 samples of about 256 tokens, the demo's five tensors.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from schemas.schema import Schema
from tests.bench.row import Row, interleaved

MODEL = Path("data/models/smollm2-135m-instruct")
TENSORS = ("embed", "layer2", "layer15", "layer27", "final")
N_SAMPLES = 8
LONGEST = 256
PAIRS = 9


def run() -> list[Row]:
    """Measure the hf engine with equal and with ragged lengths, and the rate of the synthetic engine."""
    engine, model = _engine(), _bare()
    rows = []
    for name, shortest in (("equal lengths", LONGEST), ("ragged lengths", LONGEST - 64)):
        batch = _batch(shortest)
        n_tokens = sum(map(len, batch))
        ids = torch.tensor([sample + [0] * (LONGEST - len(sample)) for sample in batch])

        def captured(batch: list[list[int]] = batch, n_tokens: int = n_tokens) -> float:
            return _rate(lambda: engine.submit(batch).result(), n_tokens)

        def bare(ids: torch.Tensor = ids, n_tokens: int = n_tokens) -> float:
            return _rate(lambda: _forward(model, ids), n_tokens)

        captured(), bare()
        ours, plain, ratio = interleaved(captured, bare, PAIRS)
        rows.append(Row(f"bare model, {name}", plain, "tokens/s"))
        rows.append(Row(f"hf engine, {name}", ours, "tokens/s", ratio, "bare model", goal=0.95))
    return [*rows, _synthetic()]


def _engine() -> Any:
    settings = EngineSettings(model=str(MODEL), device="cpu")
    return open_engine(settings, Schema.declare(read_target(settings), TENSORS, "bfloat16"))


def _bare() -> Any:
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).eval().model


def _forward(model: Any, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        model(input_ids=ids, use_cache=False)


def _batch(shortest: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    lengths = np.linspace(shortest, LONGEST, N_SAMPLES).astype(int)
    return [rng.integers(0, 49152, length).tolist() for length in lengths]


def _rate(work: Any, n: int) -> float:
    started = time.perf_counter()
    work()
    return n / (time.perf_counter() - started)


def _synthetic() -> Row:
    """Rows of a large model's width, by one thread."""
    settings = EngineSettings(
        name="synthetic", synthetic=SyntheticSettings(n_layers=61, hidden_size=7168, vocab_size=100_000)
    )
    names = ("embed", "layer3", "layer31", "layer59", "final")
    schema = Schema.declare(read_target(settings), names, "bfloat16")
    engine = open_engine(settings, schema)
    batch = _batch(LONGEST)
    n_bytes = sum(map(len, batch)) * schema.token_bytes
    rates = [_rate(lambda: engine.submit(batch).result(), n_bytes) for _ in range(9)]
    return Row("synthetic engine, width 7168", float(np.median(rates)) / 1e9, "GB/s", goal=1.0)
