"""Runs small enough for tests: the synthetic engine over token prompts in a temporary folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datagen.config import RunConfig, load_config

VOCABULARY = 1000


def write_prompts(file: Path, lengths: Sequence[int], seed: int = 0) -> Path:
    """Write a JSONL file of random token prompts of these lengths, the second half of each trained."""
    rng = np.random.default_rng(seed)
    with file.open("w", encoding="utf-8") as stream:
        for number, length in enumerate(lengths):
            record = {
                "id": f"conversation-{number}",
                "input_ids": rng.integers(0, VOCABULARY, length).tolist(),
                "loss_mask": [0] * (length // 2) + [1] * (length - length // 2),
            }
            stream.write(json.dumps(record) + "\n")
    return file


def synthetic_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a small run over `folder/prompts.jsonl` into `folder/data/small`."""
    return {
        "output.root": str(folder / "data"),
        "output.dataset": "small",
        "prompts.path": str(folder / "prompts.jsonl"),
        "engine.name": "synthetic",
        "engine.synthetic.n_layers": 4,
        "engine.synthetic.hidden_size": 32,
        "engine.synthetic.vocab_size": VOCABULARY,
        "tensors.names": "embed,layer2,final",
        "workers.cpus": 0.5,
        "audit.samples": 2,
        "audit.max_tokens": 16,
    }


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as flags of the command line."""
    return [piece for name, value in settings.items() for piece in (f"--{name}", str(value))]


def synthetic_config(folder: Path, **changes: Any) -> RunConfig:
    """Return the configuration of a small run; a change is written `workers__count=2`."""
    settings = synthetic_settings(folder)
    settings.update({name.replace("__", "."): value for name, value in changes.items()})
    return load_config(flags(settings), None, "strata run")
