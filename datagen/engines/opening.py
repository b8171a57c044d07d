"""Opens an engine by its name, and loads only that one's libraries: the synthetic engine never meets torch.

An engine's module has four functions: `read_target(settings)`, `longest_sample(settings)`, `engine_version()`
and `open_engine(settings, schema)`.
"""

from importlib import import_module
from typing import Protocol, cast

from datagen.engines.base import Engine
from datagen.engines.settings import EngineName, EngineSettings
from schemas.schema import Schema
from schemas.target import Target


class _EngineModule(Protocol):
    def read_target(self, settings: EngineSettings) -> Target: ...

    def longest_sample(self, settings: EngineSettings) -> int | None: ...

    def engine_version(self) -> str: ...

    def open_engine(self, settings: EngineSettings, schema: Schema) -> Engine: ...


_MODULES: dict[EngineName, str] = {
    "hf": "datagen.engines.hf",
    "synthetic": "datagen.engines.synthetic",
}


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


def engine_version(settings: EngineSettings) -> str:
    """Return the version of what computes, as `EngineInfo.version` will say it, without loading weights."""
    return _module(settings).engine_version()


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Open the engine for the tensors of `schema`.

    Raises `OpeningError` when the model, its dtype, its structure or its identity is not what was asked for.
    """
    return _module(settings).open_engine(settings, schema)


def _module(settings: EngineSettings) -> _EngineModule:
    return cast(_EngineModule, import_module(_MODULES[settings.name]))
