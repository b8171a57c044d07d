"""The final norm of a model as a dataset keeps it, found by what the model's own class makes of rows.

A class's name says little (`RMSNorm` is half a dozen arithmetics), so the module of transformers is run with
the model's real weight on random rows, in bfloat16, where every rounding shows, and the recipe that makes the
same is kept. Where none does, none is kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datagen.engines.architecture import read_config
from datagen.engines.end_modules import UNFIT, find_ends, refusal
from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate, weights_of
from datagen.engines.named_weights import NamedWeights
from datagen.engines.settings import EngineSettings
from datagen.store.final_norm import apply_norm
from schemas.final_norm import FinalNorm, NormRecipe
from schemas.problem import Problem
from schemas.schema import DType
from schemas.target import WeightsDigest

_EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
"""What classes of transformers call theirs."""
_ROWS = 96
EQUAL_SHARE = 0.999
"""Of the values; a row's sum, taken in another order, moves fewer by one unit in the last place."""
_UNIT = 2.0**-6
"""Two units of bfloat16's last place, of values from 1 on."""


def model_final_norm(model: str, revision: str | None = None) -> FinalNorm:
    """Return the final norm of the model in a folder, or of a hub id.

    Raises `OpeningError` where the files do not tell it, or no recipe makes what its class makes.
    """
    return final_norm_of(EngineSettings(name="hf", model=model, revision=revision))


def final_norm_of(settings: EngineSettings) -> FinalNorm:
    """Return the final norm of the model that `settings` name; nothing of its weights is downloaded.

    Raises `OpeningError` as `model_final_norm` does, and where the weights are not on this host.
    """
    if settings.name == "synthetic":
        message = "expected a model with files, got the engine synthetic, which has none"
        raise refusal([Problem(where="engine.name", kind="model", message=message)])
    files = locate(settings, with_weights=False)
    weights = weights_of(files)
    if isinstance(weights, Problem):
        raise refusal([weights])
    config = read_config(files.folder, trust_remote_code=settings.trust_remote_code)
    return read_norm(files.folder, config, weights)


def read_norm(folder: Path, config: Any, weights: WeightsDigest) -> FinalNorm:
    """Return the final norm of the model in `folder`, whose weights have that digest."""
    ends = find_ends(config)
    files = NamedWeights(folder)
    keys = files.find(ends.norm_names.values())
    state = {name: files.read(keys[path]) for name, path in ends.norm_names.items()}
    problems = [
        Problem(where=name, kind="model", message=f"expected weight and bias alone, got {name}")
        for name in state
        if name not in ("weight", "bias")
    ]
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in state.items()}
    problems += [
        Problem(where=name, kind="dtype", message=f"expected {', '.join(get_args(DType))}, got {dtype}")
        for name, dtype in dtypes.items()
        if dtype not in get_args(DType) or dtype != dtypes.get("weight")
    ]
    if problems:
        raise refusal(problems)
    return _recognised(ends.norm, state, weights)


def _recognised(module: nn.Module, state: dict[str, Tensor], weights: WeightsDigest) -> FinalNorm:
    """Return the norm by the recipe that makes of random rows what `module` makes of them."""
    rows = _random_rows(len(state["weight"]))
    try:
        module.load_state_dict({name: one.to(torch.bfloat16) for name, one in state.items()}, assign=True)
        module.eval()
        with torch.inference_mode():
            expected = module(rows).to(torch.float32).numpy()
    except UNFIT as error:
        message = f"expected a norm of rows alone, got {type(module).__name__}: {error}"
        raise refusal([Problem(where="final norm", kind="model", message=message)]) from error
    given = rows.view(torch.uint16).numpy()
    bias = state.get("bias")
    nearest = 0.0
    for recipe in _recipes(module):
        dtype = str(state["weight"].dtype).removeprefix("torch.")
        norm = FinalNorm.of(
            recipe,
            next(known for known in get_args(DType) if known == dtype),
            _raw(state["weight"]),
            None if bias is None else _raw(bias),
            weights,
        )
        made = _wide(apply_norm(norm, given, "bfloat16"))
        equal = float((made == expected).mean())
        near = np.abs(made - expected) <= _UNIT * np.maximum(np.abs(expected), 1)
        if equal >= EQUAL_SHARE and near.all():
            return norm
        nearest = max(nearest, equal)
    message = (
        f"expected a norm whose arithmetic is known, got {type(module).__name__}: the nearest known one makes"
        f" {nearest:.1%} of the values that it makes"
    )
    raise OpeningError(
        "the model's final norm is not understood",
        [Problem(where="final norm", kind="model", message=message, repair="capture final_normed itself")],
    )


def _recipes(module: nn.Module) -> Iterator[NormRecipe]:
    """Yield every known arithmetic with each epsilon that the module has."""
    found = (getattr(module, name, None) for name in _EPSILONS)
    epsilons = dict.fromkeys(value for value in found if isinstance(value, float))
    for epsilon in epsilons:
        yield NormRecipe("rms_norm", epsilon, 0.0, "before_scale")
        yield NormRecipe("rms_norm", epsilon, 0.0, "after_scale")
        yield NormRecipe("rms_norm", epsilon, 1.0, "after_scale")
        yield NormRecipe("layer_norm", epsilon, 0.0, "after_scale")
        yield NormRecipe("layer_norm", epsilon, 0.0, "before_scale")


def _random_rows(width: int) -> Tensor:
    """Return rows from those where epsilon counts to those as large as a sink's, with a mean of their own."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(_ROWS, width, generator=generator) + torch.randn(_ROWS, 1, generator=generator)
    return (rows * torch.logspace(-3, 3, _ROWS)[:, None]).to(torch.bfloat16)


def _raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def _wide(bits: NDArray[np.generic]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
