"""Loads a causal model of transformers: which auto class, in which dtype, on which devices."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

from datagen.engines.errors import OpeningError
from datagen.engines.settings import EngineSettings
from schemas.problem import Problem
from schemas.schema import DType

TORCH_DTYPES: dict[DType, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


def place_of_work(settings: EngineSettings) -> str:
    """Return `cpu` or `cuda`, what `settings` ask for.

    Raises `OpeningError` where cuda is asked for and there is none.
    """
    there = torch.cuda.is_available()
    wants_cuda = settings.device == "cuda" or settings.device_map is not None
    if wants_cuda and not there and settings.device_map != "cpu":
        problem = Problem(
            where="engine.device",
            kind="device",
            message="expected a CUDA device, got none that torch can use",
            repair="set engine.device = cpu, or run where `torch.cuda.is_available()` is true",
        )
        raise OpeningError("the device is not there", [problem])
    if settings.device_map == "cpu" or settings.device == "cpu" or not there:
        return "cpu"
    return "cuda"


def load_model(folder: Path, config: Any, settings: EngineSettings) -> Any:
    """Return the model in evaluation mode; all of it runs under `torch.inference_mode`.

    Raises `OpeningError` when transformers has no causal class for it, or cannot load it.
    """
    auto_class = _auto_class(config, settings)
    place = place_of_work(settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    options: dict[str, Any] = {}
    if settings.device_map is not None:
        options["device_map"] = settings.device_map
    elif place == "cuda" and find_spec("accelerate") is not None:
        options["device_map"] = place  # weights go straight to the device, without a copy in host memory
    if settings.attn_implementation is not None:
        options["attn_implementation"] = settings.attn_implementation
    try:
        with _quiet():
            model = auto_class.from_pretrained(
                folder,
                config=config,
                dtype=TORCH_DTYPES[settings.dtype],
                trust_remote_code=settings.trust_remote_code,
                local_files_only=True,
                **options,
            )
        if place == "cuda" and "device_map" not in options:
            model = model.to(place)
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        problem = Problem(where=str(folder), kind="model", message=f"{type(error).__name__}: {error}")
        raise OpeningError("the model cannot be loaded", [problem]) from error
    # Its weights are not frozen: of a frozen one torch multiplies a batch of single tokens row by row, which
    # makes answers half as fast (`should_fold` in ATen's LinearAlgebra.cpp).
    return model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bar out of a worker's log."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _auto_class(config: Any, settings: EngineSettings) -> Any:
    """Causal models that transformers maps only to image-text-to-text (Kimi-K2.5) are loaded as such."""
    for auto_class in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto_class._model_mapping:
            return auto_class
    if settings.trust_remote_code and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return AutoModelForCausalLM
    problem = Problem(
        where=config.model_type,
        kind="model",
        message="expected a type that transformers has a causal or image-text-to-text class for, got none",
    )
    raise OpeningError("the model cannot be loaded", [problem])
