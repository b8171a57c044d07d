"""An audit set against a witness: each tensor by token, with the nearest other boundary beside it.

The witness is transformers where the model fits beside the engine: it has every boundary, so that a wrong one
is named though the audit set may lack it. Where it does not fit, or cannot run the model, it is the engine
itself in a second pass, each sample alone and in reverse order, which tells mixed-up requests, not a wrong
place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datagen.checks.likeness import ALIKE
from datagen.checks.rows import token_errors, wide
from datagen.engines.base import Engine
from datagen.engines.errors import OpeningError
from datagen.engines.opening import open_engine
from datagen.engines.reference import has_experts, reference_settings, why_no_reference
from datagen.engines.settings import EngineSettings
from schemas.boundary import all_names
from schemas.calibration import TensorAgreement
from schemas.problem import Problem
from schemas.schema import DType, Schema

Reference = Literal["auto", "hf", "engine", "none"]
Tensors = Mapping[str, NDArray[np.generic]]

LIMITS: dict[DType, tuple[float, float]] = {
    "bfloat16": (0.05, 0.15),
    "float16": (0.003, 0.02),
    "float32": (1e-4, 1e-3),
}
"""Median and 99th percentile of a tensor's errors by token at most.

In bfloat16 two right engines depart from each other by what each departs from float32: `final` of SmolLM2 on
chat prompts by 3.4% and 7.9%, vLLM's from float32 by 2.1%, transformers' own by 2.7%; its nearest other
boundary is 19% away.
"""
MAX_NEARNESS = 0.5
"""Of the distance to the nearest other boundary, the median error at most, whatever the limits allow."""
MAX_OUTLIERS = 0.25
"""With experts the 99th percentile is not held to its limit; the tokens beyond it are counted, up to this."""
RIVAL_TOKENS = 4
"""Tokens a sample that are held against every other boundary."""


@dataclass(frozen=True)
class Witness:
    """Who bears witness, in words, and the engine that does: it has the tensors of an audit set at least."""

    said: str
    engine: Engine
    is_another: bool

    def close(self) -> None:
        """Let go of a model that was loaded for this."""
        if self.is_another:
            self.engine.close()


def witness_of(engine: Engine, settings: EngineSettings, reference: Reference) -> Witness | None:
    """Return the witness of an engine that hands out an audit set; `None` where there is to be none.

    Raises `OpeningError` when transformers is asked for by name and cannot load or prove the model.
    """
    if reference == "none":
        return None
    if reference == "engine":
        return _itself(engine)
    if reference == "hf":
        return _transformers(engine, settings)
    if settings.name == "hf":
        return _itself(engine, "transformers itself, proven when it was loaded")
    why = why_no_reference(settings, engine.target)
    if why is not None:
        return _itself(engine, why)
    try:
        return _transformers(engine, settings)
    except OpeningError as error:
        told = "; ".join(dict.fromkeys([error.headline, *map(str, error.problems)]))
        return _itself(engine, f"transformers bears none: {told}")


def _itself(engine: Engine, why: str | None = None) -> Witness:
    said = f"{engine.info.name} itself, in a second pass"
    return Witness(f"{said} ({why})" if why else said, engine, is_another=False)


def _transformers(engine: Engine, settings: EngineSettings) -> Witness:
    target, dtype = engine.target, engine.schema.tensors[0].dtype
    every = Schema.declare(target, all_names(target.n_layers), dtype)
    other = open_engine(reference_settings(settings), every)
    return Witness(f"{other.info.version} on {other.info.device}", other, is_another=True)


def beside_witness(
    samples: Sequence[tuple[Sequence[int], Tensors]], witness: Engine
) -> Iterator[tuple[Tensors, Tensors]]:
    """Yield the tensors of samples (their ids, their tensors), each with the witness's of the same ids."""
    for ids, tensors in reversed(samples):
        (capture,) = witness.submit([list(ids)]).result()
        yield tensors, capture.tensors


def agreements(schema: Schema, pairs: Iterable[tuple[Tensors, Tensors]]) -> tuple[TensorAgreement, ...]:
    """Return how far the tensors of `schema` are from the expected ones, over pairs of both.

    What is expected may have more tensors: each is a place that a wrong one may be of.
    """
    errors: dict[str, list[NDArray[np.float32]]] = {name: [] for name in schema.names}
    rivals: dict[str, list[NDArray[np.float32]]] = {name: [] for name in schema.names}
    places: tuple[str, ...] = schema.names
    for tensors, expected in pairs:
        places = tuple(expected)
        n_tokens = len(next(iter(expected.values())))
        picked = np.unique(np.linspace(min(1, n_tokens - 1), n_tokens - 1, RIVAL_TOKENS).astype(int))
        others = np.stack([wide(expected[name][picked]) for name in places])
        for name in schema.names:
            errors[name].append(token_errors(tensors[name], expected[name]))
            mine = wide(tensors[name][picked])
            rivals[name].append(np.stack([token_errors(mine, other) for other in others]))
    return tuple(
        _agreement(schema, places, name, np.concatenate(errors[name]), np.concatenate(rivals[name], axis=1))
        for name in schema.names
    )


def _agreement(
    schema: Schema,
    places: Sequence[str],
    name: str,
    errors: NDArray[np.float32],
    rivals: NDArray[np.float32],
) -> TensorAgreement:
    median, p99 = np.quantile(errors.astype(np.float64), [0.5, 0.99])
    distances = dict(zip(places, np.median(rivals, axis=1).tolist(), strict=True))
    del distances[name]
    nearest = min(distances, key=distances.__getitem__, default=None)
    return TensorAgreement(
        name=name,
        median=float(median),
        p99=float(p99),
        outliers=int((errors > LIMITS[schema.tensor(name).dtype][1]).sum()),
        nearest=nearest,
        distance=None if nearest is None else distances[nearest],
    )


def agreement_problems(
    schema: Schema, found: Sequence[TensorAgreement], n_tokens: int, settings: EngineSettings
) -> list[Problem]:
    """Return every tensor that is not the witness's, with what it is nearest to."""
    experts = has_experts(settings)
    problems = []
    for tensor in found:
        most, most_p99 = LIMITS[schema.tensor(tensor.name).dtype]
        beyond = tensor.outliers > MAX_OUTLIERS * n_tokens if experts else tensor.p99 > most_p99
        if tensor.distance is not None:
            most = min(most, MAX_NEARNESS * tensor.distance)
        if tensor.median <= most and not beyond:
            continue
        message = (
            f"expected a median error of at most {most:.2%} and a 99th percentile of at most {most_p99:.2%} "
            f"by token, got {tensor.median:.2%} and {tensor.p99:.2%}"
        )
        if tensor.distance is not None and tensor.distance < min(tensor.median, ALIKE):
            message += f": it looks like `{tensor.nearest}` ({tensor.distance:.2%})"
        problems.append(Problem(where=tensor.name, kind="calibration", message=message))
    return problems
