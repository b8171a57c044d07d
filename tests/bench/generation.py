"""What generate mode costs: its answers and the capture behind them, over transformers' own of the same.

SmolLM2 in bfloat16, the demo's first questions side by side, at temperature 0, by one thread: the short steps
of an answer wait for a second one that another process holds. The baseline is one call of
`generate` with the same padding and the same ends, then a bare prefill of what came out. Both may say another
token where two are nearly as likely; each counts its own.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging

from datagen.config import load_config
from datagen.engines.opening import open_engine
from datagen.engines.sampling import Sampling
from datagen.planning.preparation import prepare
from datagen.planning.rendering import template_of
from datagen.prompts.prompt import Prompt
from datagen.worker.answering import Answerer, AnsweringOrder
from datagen.worker.write_behind import UnitProgress
from tests.bench.row import Row, interleaved

CONFIG = Path("deploy/runs/demo-generate.toml")
N_PROMPTS = 8
MAX_TOKENS = 24
MOST_GIVEN = 128
"""Of a question at most, so that answers are the larger part of the work, as they are in a real run."""
PAIRS = 3
FLAGS = [
    *("--generate.temperature", "0", "--generate.max_tokens", str(MAX_TOKENS)),
    *("--engine.device", "cpu", "--engine.threads", "1"),
]


def run() -> list[Row]:
    """Measure answers and capture, ours and transformers' own."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measured()
    finally:
        torch.set_num_threads(n_threads)


def _measured() -> list[Row]:
    config = load_config(FLAGS, CONFIG, "bench")
    prepared = prepare(config, "bench")
    if prepared.sampling is None or config.generate is None:
        raise RuntimeError("expected a run in generate mode")
    engine: Any = open_engine(config.engine, prepared.schema)
    order = AnsweringOrder(prepared.sampling, config.generate.seed, N_PROMPTS, False, config.prompts)
    template = template_of(config.engine, config.prompts)
    asks = _first_questions(prepared.prompts)
    model = _bare()

    def ours() -> float:
        started = time.perf_counter()
        answered = Answerer(engine, order, template, "bench", UnitProgress()).answer(asks)
        engine.submit([prompt.input_ids.tolist() for prompt in answered.prompts]).result()
        said = sum(prompt.n_trained for prompt in answered.prompts)
        return said / (time.perf_counter() - started)

    def theirs() -> float:
        started = time.perf_counter()
        said = _generate_and_prefill(model, asks, order.sampling)
        return said / (time.perf_counter() - started)

    ours(), theirs()
    mine, other, ratio = interleaved(ours, theirs, PAIRS)
    return [
        Row("transformers' generate, then a prefill", other, "answer tokens/s"),
        Row("generate mode: answers, then capture", mine, "answer tokens/s", ratio, "transformers", goal=0.9),
    ]


def _first_questions(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return asks for one answer each, the shortest first questions left out."""
    some = [prompt for prompt in prompts if prompt.ask is not None and prompt.n_tokens <= MOST_GIVEN]
    longest = sorted(some, key=lambda prompt: (-prompt.n_tokens, prompt.prompt_id))[:N_PROMPTS]
    return [replace(prompt, ask=replace(prompt.ask, following=())) for prompt in longest if prompt.ask]


def _bare() -> Any:
    logging.disable_progress_bar()
    folder = load_config(FLAGS, CONFIG, "bench").engine.model
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config = GenerationConfig()
    return model


def _generate_and_prefill(model: Any, asks: Sequence[Prompt], sampling: Sampling) -> int:
    """Return how many tokens were said."""
    ends = list(sampling.stop_token_ids)
    width = max(ask.n_tokens for ask in asks)
    ids = torch.full((len(asks), width), ends[0])
    mask = torch.zeros_like(ids)
    for row, ask in enumerate(asks):
        ids[row, width - ask.n_tokens :] = torch.from_numpy(ask.input_ids.astype(np.int64))
        mask[row, width - ask.n_tokens :] = 1
    config = GenerationConfig(
        do_sample=False, max_new_tokens=sampling.max_tokens, eos_token_id=ends, pad_token_id=ends[0]
    )
    with torch.inference_mode():
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        answers = [_ended(row, ends) for row in out[:, width:].tolist()]
        whole = [[*ask.input_ids.tolist(), *said] for ask, said in zip(asks, answers, strict=True)]
        longest = max(map(len, whole))
        padded = torch.tensor([sample + [0] * (longest - len(sample)) for sample in whole])
        model.model(input_ids=padded, use_cache=False)
    return sum(map(len, answers))


def _ended(ids: list[int], ends: Sequence[int]) -> list[int]:
    at = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return ids[: at + 1]
