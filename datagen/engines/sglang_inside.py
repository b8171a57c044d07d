"""The engine `sglang`: an SGLang inside the worker, in its capture-only mode, asked at plan time without it.

Which ids are written for which boundaries is `schemas.consumers`' to say, which is tried against SGLang's own
code. It captures what goes into a layer: never the last layer's output (`final`, `final_normed`). `embed` has
no id on most models; it comes from the embedding table of the model's files then, where that is not scaled.
The mode was not run: this was written against the code of the release that is pinned.
"""

from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from datagen.engines.architecture import read_config, read_config_file
from datagen.engines.assumed import teller
from datagen.engines.base import Engine
from datagen.engines.end_modules import rows_problems, table_problem
from datagen.engines.errors import OpeningError
from datagen.engines.identity import read_target
from datagen.engines.model_files import locate
from datagen.engines.opening import Giving
from datagen.engines.opening_checks import schema_problems
from datagen.engines.positions import position_rule
from datagen.engines.settings import EngineSettings
from datagen.engines.vllm_layers import SCALING
from schemas.boundary import EMBED, FINAL, FINAL_NORMED
from schemas.consumers.resolution import Shape
from schemas.consumers.write import Written, what_to_write
from schemas.problem import Problem
from schemas.schema import Schema

__all__ = [
    "SglangLayers",
    "engine_version",
    "giving",
    "layers_of",
    "longest_sample",
    "open_engine",
    "read_target",
]

PINNED = "0.5.23"
"""The one release whose public interface this was written against; the mode is too young to be relied on."""


class SglangLayers(NamedTuple):
    """`ids` are SGLang's, and `slots` says which of its slots, in the order of layers, holds which tensor.

    `assumed` is what is not declared of this model.
    """

    ids: tuple[int, ...]
    slots: dict[str, int]
    embed_beside: bool
    assumed: tuple[str, ...] = ()


class _Running(Protocol):
    def start(self, settings: EngineSettings, schema: Schema, layers: SglangLayers) -> Engine: ...


def sglang_release() -> str:
    """Return the release of SGLang that is installed; raises `OpeningError` where it is not `PINNED`."""
    try:
        release = version("sglang").partition("+")[0]
    except PackageNotFoundError:
        release = "none"
    if release == PINNED:
        return release
    message = f"expected the package sglang {PINNED} for the engine sglang, got {release}"
    repair = "install strata-hidden-states[sglang] beside the run and on every worker"
    raise OpeningError(
        "the engine sglang cannot be used",
        [Problem(where="engine.name", kind="package", message=message, repair=repair)],
    )


def engine_version() -> str:
    """Return the versions of what computes; raises `OpeningError` as `sglang_release` does."""
    return f"sglang {sglang_release()}, torch {version('torch')}"


def longest_sample(settings: EngineSettings) -> int | None:
    """Return the most tokens of a sample: one less than a request's, since each says one token more.

    Of a model with longrope that is the trained length: with a longer sample in its batch, SGLang takes the
    long factors for every one (`rope_variant.py`, 0.5.23).

    Raises `OpeningError` where the model's files cannot be read.
    """
    rule = position_rule(read_full_config(settings).get_text_config(decoder=True))
    limits = [one for one in (*rule, settings.sglang.context_length) if one is not None]
    return min(limits) - 1 if limits else None


def giving(settings: EngineSettings, config_file: Path | None) -> Giving:
    """Ask what the pinned SGLang gives; only without a `config_file` it must be here.

    Raises `OpeningError` where it is not installed or the model's files cannot be read.
    """
    if config_file is None:
        sglang_release()
        config = read_full_config(settings)
    else:
        config = read_config_file(config_file)
    text = config.get_text_config(decoder=True)
    table = cache(partial(table_problem, config))
    tell = teller("sglang")

    def problems(opened: Schema, asked: Schema) -> list[Problem]:
        found, started = layers_of(asked, text), layers_of(opened, text)
        if not isinstance(found, SglangLayers):
            return found
        if isinstance(started, SglangLayers) and found.ids != started.ids:
            message = (
                f"expected the layers that SGLang is started with ({_said(started.ids)}), "
                f"got {_said(found.ids)}"
            )
            return [_problem("tensors", message)]
        tell(found.assumed)
        return rows_problems(table, embed=found.embed_beside)

    return problems


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Start an SGLang that captures the layers of `schema`.

    Raises `OpeningError` when the model is not the schema's target, or SGLang cannot give its tensors.
    """
    sglang_release()
    problems = schema_problems(schema, read_target(settings), settings.dtype)
    if problems:
        raise OpeningError("the schema is not of the model that was opened", problems)
    config = read_full_config(settings)
    layers = layers_of(schema, config.get_text_config(decoder=True))
    if not isinstance(layers, SglangLayers):
        raise OpeningError("SGLang cannot give these tensors", layers)
    if problems := rows_problems(partial(table_problem, config), embed=layers.embed_beside):
        raise OpeningError("embed cannot be made", problems)
    running = cast(_Running, import_module("datagen.engines.sglang_running"))
    return running.start(settings, schema, layers)


def layers_of(schema: Schema, text_config: Any) -> SglangLayers | list[Problem]:
    """Return what SGLang is asked for, or every reason why it cannot give the tensors of `schema`."""
    target = schema.target
    problems = [
        _problem(
            name, "expected what goes into a layer, got the output of the last, which SGLang never gives"
        )
        for name in (FINAL, FINAL_NORMED)
        if name in schema.names
    ]
    boundaries = sorted({spec.boundary for spec in schema.tensors} - {target.n_layers})
    ids = _ids(schema, boundaries)
    beside = 0 in boundaries and (not isinstance(ids, tuple) or min(ids) < 0)
    if beside:
        boundaries.remove(0)
        scaling = [name for name in SCALING if getattr(text_config, name, None) not in (None, False, 1, 1.0)]
        if scaling:
            message = f"expected an embedding that is not scaled, got a config with {', '.join(scaling)}"
            problems.append(_problem(EMBED, message))
        ids = _ids(schema, boundaries)
    if not boundaries and not problems:
        problems.append(_problem("tensors", "expected a tensor beside embed, got none that SGLang captures"))
    if not isinstance(ids, tuple):
        problems += ids
    elif wrong := [one for one in ids if not 0 <= one < target.n_layers]:
        message = f"expected ids from 0 to {target.n_layers - 1} in this mode, got {wrong}"
        problems.append(_problem("tensors", message))
    if problems or not isinstance(ids, tuple):
        return problems
    slots = {
        spec.name: boundaries.index(spec.boundary) for spec in schema.tensors if spec.boundary in boundaries
    }
    return SglangLayers(ids, slots, beside, _written(schema, boundaries).assumptions)


def _ids(schema: Schema, boundaries: list[int]) -> tuple[int, ...] | list[Problem]:
    """Return the ids that make SGLang capture exactly these boundaries, or why there are none."""
    if not boundaries:
        return ()
    written = _written(schema, boundaries)
    if written.ids is not None:
        return written.ids
    return [one for one in written.problems if one.severity == "error"]


def _written(schema: Schema, boundaries: list[int]) -> Written:
    shape = Shape(model_type=schema.target.model_type, n_layers=schema.target.n_layers)
    return what_to_write("sglang", PINNED, shape, boundaries)


def read_full_config(settings: EngineSettings) -> Any:
    """Return transformers' config of the model, with whatever there is beside its text model."""
    folder = locate(settings, with_weights=False).folder
    return read_config(folder, trust_remote_code=settings.trust_remote_code)


def _said(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))


def _problem(where: str, message: str) -> Problem:
    return Problem(
        where=where, kind="boundary", message=message, repair="declare other tensors, or engine hf"
    )
