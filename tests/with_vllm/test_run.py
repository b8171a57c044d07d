"""The way of a run with a real vLLM: driver, a Ray worker, parts, audit, and every byte verified."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demo.model import MODEL
from tests.datagen.engines.tiny_models import VOCAB
from tests.datagen.prompts.written import jsonl, talk
from tests.datagen.run_builders import flags
from tests.with_vllm import small_models

STRATA = Path(sys.executable).with_name("strata")
SECONDS = 400


def strata(*arguments: str) -> str:
    done = subprocess.run(
        [str(STRATA), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def settings(folder: Path, model: Path, **changes: Any) -> Mapping[str, Any]:
    return {
        "output.root": str(folder / "data"),
        "output.dataset": "small",
        "prompts.path": str(folder / "prompts.jsonl"),
        "prompts.max_tokens": 100,
        "engine.name": "vllm",
        "engine.model": str(model.resolve()),
        "engine.vllm.max_model_len": 128,
        "engine.vllm.max_num_batched_tokens": 256,
        "engine.vllm.kv_cache_gib": 0.5,
        "tensors.names": "embed,layer2,final",
        "workers.cpus": 1,
        "audit.samples": 4,
        "audit.max_tokens": 32,
        **changes,
    }


def test_a_run_captures_through_vllm_and_verifies(tmp_path: Path) -> None:
    model = small_models.save("llama", tmp_path / "model")
    rng = np.random.default_rng(2)
    records: list[dict[str, Any]] = []
    for number, length in enumerate((5, 90, 33, 7, 64, 18, 41, 12)):
        ids = rng.integers(0, VOCAB, length).tolist()
        records.append({"id": f"c{number}", "input_ids": ids, "loss_mask": [0, *[1] * (length - 1)]})
    jsonl(tmp_path / "prompts.jsonl", records)
    strata("run", *flags(settings(tmp_path, model)))
    assert "vllm" in strata("show", str(tmp_path / "data" / "small"))
    strata("verify", str(tmp_path / "data" / "small"))
    strata("verify", str(tmp_path / "data" / "small.audit"))


def test_a_run_lets_the_target_answer_through_vllm(tmp_path: Path) -> None:
    jsonl(
        tmp_path / "prompts.jsonl",
        [
            talk("What is the capital of France?", "x", "And of Italy?"),
            talk("Name three colours."),
            talk("Write one sentence about the sea."),
        ],
    )
    changes = {
        "generate.max_tokens": 12,
        "generate.temperature": 0.7,
        "generate.seed": 3,
        "engine.dtype": "float32",
        "tensors.dtype": "float32",
    }
    strata("run", *flags(settings(tmp_path, MODEL, **changes)))
    strata("verify", str(tmp_path / "data" / "small"))
    shown = json.loads(strata("show", str(tmp_path / "data" / "small"), "--json"))
    assert shown
