"""The way of a run with a real vLLM: driver, a Ray worker, parts, audit, and every byte verified."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demo.model import MODEL
from schemas.boundary import all_names
from schemas.calibration import CalibrationRecord
from tests.datagen.engines.tiny_models import VOCAB
from tests.datagen.prompts.written import jsonl, talk
from tests.datagen.run_builders import flags
from tests.with_vllm import small_models
from tests.with_vllm.pipeline import conversations

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
        "engine.vllm.max_num_batched_tokens": 256,
        "engine.vllm.kv_cache_gib": 0.5,
        "tensors.names": "embed,layer2,final",
        "workers.cpus": 1,
        "audit.samples": 4,
        "audit.max_tokens": 32,
        **changes,
    }


def write_token_prompts(folder: Path) -> None:
    """Write `prompts.jsonl`: 8 prompts of the small models' ids, of 5 to 90 tokens."""
    rng = np.random.default_rng(2)
    records: list[dict[str, Any]] = []
    for number, length in enumerate((5, 90, 33, 7, 64, 18, 41, 12)):
        ids = rng.integers(0, VOCAB, length).tolist()
        records.append({"id": f"c{number}", "input_ids": ids, "loss_mask": [0, *[1] * (length - 1)]})
    jsonl(folder / "prompts.jsonl", records)


def test_a_run_captures_through_vllm_and_verifies(tmp_path: Path) -> None:
    model = small_models.save("llama", tmp_path / "model")
    write_token_prompts(tmp_path)
    strata("run", *flags(settings(tmp_path, model)))
    assert "vllm" in strata("show", str(tmp_path / "data" / "small"))
    strata("verify", str(tmp_path / "data" / "small"))
    strata("verify", str(tmp_path / "data" / "small.audit"))


def test_a_run_of_a_real_model_in_bfloat16_is_held_against_transformers(
    tmp_path: Path, figures: list[str]
) -> None:
    """Real conversations, every setting of the audit at its default: nothing is refused."""
    (tmp_path / "prompts.jsonl").write_text("\n".join(conversations(20)), encoding="utf-8")
    changes = {
        "prompts.max_tokens": 500,
        "tensors.names": "embed,layer2,layer15,layer27,final",
        "audit.samples": 8,
        "audit.max_tokens": 128,
    }
    strata("run", *flags(settings(tmp_path, MODEL, **changes)))
    data = tmp_path / "data"
    made = {name: json.loads(strata("show", str(data / name), "--json")) for name in ("small", "small.audit")}
    assert [shown["version"]["n_quarantined"] for shown in made.values()] == [0, 0]
    assert [shown["version"]["n_samples"] for shown in made.values()] == [20, 8]
    (file,) = (data / "small.audit" / "runs").glob("*/calibration.json")
    record = CalibrationRecord.model_validate_json(file.read_bytes())
    assert record.witness.startswith("transformers")
    assert [tensor.name for tensor in record.tensors] == list(all_names(30))
    for tensor in record.tensors:
        assert tensor.nearest is not None
        assert tensor.distance is not None
        figures.append(
            f"run in bfloat16, {tensor.name}: median {tensor.median:.2%}, p99 {tensor.p99:.2%}; "
            f"nearest other {tensor.nearest} {tensor.distance:.1%}"
        )
        assert tensor.distance >= 5 * tensor.median, tensor.name
    assert record.agreeing >= 0.98 * (record.positions - record.tied)


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
