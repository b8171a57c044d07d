"""Opens an engine by its name, and loads only that one's libraries: the synthetic engine never meets torch.

An engine's module has four functions: `read_target(settings)`, `longest_sample(settings)`, `engine_version()`
and `open_engine(settings, schema)`; one that can answer has `ending_token_ids(settings)` too, and one that
cannot give every tensor of every model `giving(settings, config_file)`. One whose model runs elsewhere has
`version_of(settings)` in the place of `engine_version()`.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from datagen.engines.base import Engine
from datagen.engines.settings import EngineName, EngineSettings
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.target import Target

Giving = Callable[[Schema, Schema], list[Problem]]
"""Why an engine that is opened for the first schema cannot hand out the tensors of the second one."""


class _EngineModule(Protocol):
    def read_target(self, settings: EngineSettings) -> Target: ...

    def longest_sample(self, settings: EngineSettings) -> int | None: ...

    def ending_token_ids(self, settings: EngineSettings) -> tuple[int, ...]: ...

    def giving(self, settings: EngineSettings, config_file: Path | None) -> Giving: ...

    def engine_version(self) -> str: ...

    def version_of(self, settings: EngineSettings) -> str: ...

    def open_engine(self, settings: EngineSettings, schema: Schema) -> Engine: ...


_MODULES: dict[EngineName, str] = {
    "hf": "datagen.engines.hf",
    "openai": "datagen.engines.server_files",
    "sglang": "datagen.engines.sglang_inside",
    "synthetic": "datagen.engines.synthetic",
    "vllm": "datagen.engines.vllm_inside",
}

_CHOOSY: frozenset[EngineName] = frozenset({"openai", "sglang", "vllm"})
"""Engines that cannot give every tensor of every model."""
_ELSEWHERE: frozenset[EngineName] = frozenset({"openai"})
"""Engines whose version is another host's to say."""


def read_target(settings: EngineSettings) -> Target:
    """Return the identity of the model that `settings` name, without loading its weights.

    Raises `OpeningError` with everything that is wrong with the model's files.
    """
    return _module(settings).read_target(settings)


def longest_sample(settings: EngineSettings) -> int | None:
    """Return the most tokens that a sample may have, `None` without a limit; longer ones are a `BatchError`.

    Raises `OpeningError` where the model's files cannot be read.
    """
    return _module(settings).longest_sample(settings)


def ending_token_ids(settings: EngineSettings) -> tuple[int, ...]:
    """Return the tokens that end an answer, by the model's files; only engines of `ANSWERING` are asked.

    Raises `OpeningError` where the model's files cannot be read.
    """
    return _module(settings).ending_token_ids(settings)


def giving(settings: EngineSettings, config_file: Path | None = None) -> Giving:
    """Ask once what an engine can give, with nothing loaded; what is returned asks nobody.

    With `config_file`, a model's `config.json`, that alone is read: what a package or a server would have to
    be asked is taken to be as the oldest release that was tried.

    Raises `OpeningError` where its package is not installed, its server does not answer, or the model's files
    cannot be read.
    """
    if settings.name not in _CHOOSY:
        return _gives_all
    return _module(settings).giving(settings, config_file)


def boundary_problems(settings: EngineSettings, schema: Schema) -> list[Problem]:
    """Return why the engine cannot give the tensors of `schema`; raises as `giving` does."""
    return giving(settings)(schema, schema)


def _gives_all(_opened: Schema, _asked: Schema) -> list[Problem]:
    return []


def engine_version(settings: EngineSettings) -> str:
    """Return the version of what computes, as `EngineInfo.version` will say it, without loading weights."""
    module = _module(settings)
    return module.version_of(settings) if settings.name in _ELSEWHERE else module.engine_version()


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Open the engine for the tensors of `schema`.

    Raises `OpeningError` when the model, its dtype, its structure or its identity is not what was asked for.
    """
    return _module(settings).open_engine(settings, schema)


def _module(settings: EngineSettings) -> _EngineModule:
    return cast(_EngineModule, import_module(_MODULES[settings.name]))
