"""The real SmolLM2 answers: its greedy text is transformers', and what is captured is a fresh prefill."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from datagen.config import RunConfig, load_config
from datagen.engines.opening import open_engine
from datagen.planning.preparation import prepare
from datagen.planning.rendering import template_of
from datagen.prompts.prompt import Prompt
from datagen.worker.answering import Answerer, AnsweringOrder
from datagen.worker.write_behind import UnitProgress
from schemas.schema import DType, Schema
from tests.datagen.prompts.written import jsonl, talk
from tests.datagen.run_builders import flags
from tests.datagen.template import real

QUESTIONS = (
    ("What is the capital of France?", "x", "And of Italy?"),
    ("Write one sentence about the sea.",),
)
END = 2
MAX_TOKENS = 12


def config_of(folder: Path, **changes: Any) -> RunConfig:
    real.tokenizer("smollm2")  # fails with what to do where the model is not there
    jsonl(folder / "prompts.jsonl", [talk(*turns) for turns in QUESTIONS])
    settings = {
        "output.root": str(folder / "data"),
        "output.dataset": "small",
        "prompts.path": str(folder / "prompts.jsonl"),
        "prompts.max_tokens": 400,
        "engine.model": str(real.SMOLLM2),
        "engine.device": "cpu",
        "engine.threads": 1,
        "tensors.names": "embed,layer15,final",
        "generate.max_tokens": MAX_TOKENS,
    }
    return load_config(flags({**settings, **changes}), None, "strata run")


class Target:
    """A loaded engine, and what it makes of the questions."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.engine: Any = None
        self.model = AutoModelForCausalLM.from_pretrained(real.SMOLLM2, dtype=getattr(torch, dtype)).eval()
        self.greedy_prompts: list[Prompt] = []

    def prompts(self, folder: Path) -> list[Prompt]:
        """Return the greedy answers, each made alone, once."""
        if not self.greedy_prompts:
            self.greedy_prompts = self.answered(folder, batch=1)
        return self.greedy_prompts

    def answered(self, folder: Path, batch: int, **changes: Any) -> list[Prompt]:
        config = config_of(folder, **{"engine.dtype": self.dtype, "tensors.dtype": self.dtype, **changes})
        prepared = prepare(config, "run")
        assert prepared.sampling is not None
        assert prepared.sampling.stop_token_ids == (END,)
        if self.engine is None:
            self.engine = open_engine(config.engine, prepared.schema)
        order = AnsweringOrder(prepared.sampling, config.generate.seed, batch, False, config.prompts)  # type: ignore[union-attr]
        template = template_of(config.engine, config.prompts)
        result = Answerer(self.engine, order, template, "run", UnitProgress()).answer(prepared.prompts)
        assert result.quarantined == ()
        return sorted(result.prompts, key=lambda prompt: prompt.source)

    def greedy(self, ids: list[int]) -> list[int]:
        """Return what transformers says alone behind these ids."""
        out = self.model.generate(torch.tensor([ids]), max_new_tokens=MAX_TOKENS, do_sample=False)
        said: list[int] = out[0, len(ids) :].tolist()
        return said


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    made = Target(request.param)
    yield made
    if made.engine is not None:
        made.engine.close()


def stretches(prompt: Prompt) -> list[tuple[int, int]]:
    """Return where the trained tokens begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], prompt.loss_mask, [0]])))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def test_at_temperature_0_every_turn_is_transformers_own_greedy_text(target: Target, tmp_path: Path) -> None:
    """Each answer alone, against `generate` behind the very ids that stand before it."""
    for prompt, turns in zip(target.prompts(tmp_path), QUESTIONS, strict=True):
        ids = prompt.input_ids.tolist()
        assert len(stretches(prompt)) == (len(turns) + 1) // 2
        for start, end in stretches(prompt):
            assert ids[start:end] == target.greedy(ids[:start])


def test_what_a_server_would_be_sent_is_what_the_target_was_given(target: Target, tmp_path: Path) -> None:
    tokenizer = real.tokenizer("smollm2")
    for prompt in target.prompts(tmp_path):
        messages = json.loads(prompt.text or "")
        assert all(turn.get("generated", {}).get("renders_alike", True) for turn in messages)
        plain = [{key: turn[key] for key in ("role", "content")} for turn in messages]
        for at, (start, _) in zip((1, 3, 5), stretches(prompt), strict=False):
            sent = tokenizer.apply_chat_template(plain[:at], add_generation_prompt=True, return_dict=False)
            assert sent == prompt.input_ids[:start].tolist()


def test_batched_as_alone_and_again_with_a_seed(target: Target, tmp_path: Path) -> None:
    """In bfloat16 other rows change the rounding, and a near tie may fall otherwise: there only repeated."""
    batches = (1, 4, 4) if target.dtype == "float32" else (4, 4)
    for changes in ({}, {"generate.temperature": 0.9, "generate.top_p": 0.9, "generate.n": 2}):
        ids = [
            {prompt.prompt_id: prompt.sample_id for prompt in target.answered(tmp_path, batch, **changes)}
            for batch in batches
        ]
        assert all(other == ids[0] for other in ids)
        assert len(set(ids[0].values())) == len(ids[0]) == len(QUESTIONS) * changes.get("generate.n", 1)


def test_capture_after_an_answer_is_a_fresh_prefill(target: Target, tmp_path: Path) -> None:
    prompts = target.prompts(tmp_path)
    batch = [prompt.input_ids.tolist() for prompt in prompts]
    after = target.engine.submit(batch).result()
    schema: Schema = target.engine.schema
    config = config_of(tmp_path, **{"engine.dtype": target.dtype, "tensors.dtype": target.dtype})
    fresh = open_engine(config.engine, schema)
    for one, other in zip(after, fresh.submit(batch).result(), strict=True):
        for name in schema.names:
            assert one.tensors[name].tobytes() == other.tensors[name].tobytes()
    fresh.close()


def test_the_targets_own_next_tokens_are_what_it_said(target: Target, tmp_path: Path) -> None:
    """At temperature 0 the prefill's argmax is the answer, but for ties that a cache rounds otherwise."""
    prompts = target.prompts(tmp_path)
    captures = target.engine.submit([p.input_ids.tolist() for p in prompts], with_argmax=True).result()
    hits = [
        capture.argmax[:-1][prompt.loss_mask[1:] == 1] == prompt.input_ids[1:][prompt.loss_mask[1:] == 1]
        for prompt, capture in zip(prompts, captures, strict=True)
    ]
    assert np.concatenate(hits).mean() >= (1.0 if target.dtype == "float32" else 0.95)
