"""Engines of models with random weights, made on the device and never saved."""

import json
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from datagen.engines.hf import HfEngine, LoadedModel
from datagen.engines.proof import prove
from datagen.engines.settings import EngineSettings
from schemas.schema import Schema
from schemas.target import Target, WeightsDigest


def random_model(config: Any, device: str) -> Any:
    """Return a causal model in bfloat16 with weights from a fixed seed, drawn on the device."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.to(device).eval().requires_grad_(False)


def engine_of(model: Any, device: str, names: Sequence[str]) -> HfEngine:
    """Return the proven engine of a model in memory; its identity is made up."""
    text = model.config.get_text_config(decoder=True)
    target = Target(
        model_id="random-weights",
        revision=None,
        model_type=model.config.model_type,
        architecture=type(model).__name__,
        n_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        weights=WeightsDigest(method="synthetic", sha256="0" * 64),
        quantisation=None,
        tokenizer_sha256="0" * 64,
        chat_template_sha256=None,
    )
    settings = EngineSettings.model_validate({"model": "random-weights", "device": device})
    loaded = LoadedModel(model, prove(model, torch.bfloat16), settings, target)
    return HfEngine(loaded, Schema.declare(target, names, "bfloat16"))


def report(name: str, **values: object) -> None:
    """Print a line of JSON."""
    print(json.dumps({"name": name, **values}), flush=True)  # noqa: T201
