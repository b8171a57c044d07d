"""The weights of a draft's folder as they stand, from safetensors or from PyTorch's own files.

Nothing is unpickled: a PyTorch file is read with `weights_only`, which refuses whatever is no tensor. Nothing
is mapped: a trainer may write its checkpoint again meanwhile.
"""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.safe_loading import met_in
from datagen.adapters.unmapped_tensors import safetensors_in
from schemas.contract.shown import shown
from schemas.problem import Problem

_FILES = ("model.safetensors", "pytorch_model.bin")


def read_weights(folder: Path) -> tuple[dict[str, Tensor], list[Problem]]:
    """Return the weights by the names that they have in the files, and what is wrong with those.

    An index is followed where there is one; safetensors come before `pytorch_model.bin`.
    """
    problems: list[Problem] = []
    weights: dict[str, Tensor] = {}
    for file in _files(folder, problems):
        found = _safetensors(file, problems) if file.suffix == ".safetensors" else _pytorch(file, problems)
        twice = sorted(set(found) & set(weights))
        problems += [
            _wrong(file, f"expected each name once, got {name[:80]!r} in two files") for name in twice
        ]
        weights |= found
    return weights, problems


def _files(folder: Path, problems: list[Problem]) -> list[Path]:
    for name in _FILES:
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _indexed(folder, index, problems)
    found = sorted(folder.glob("*.safetensors"))
    pickled = [folder / _FILES[1]] if (folder / _FILES[1]).is_file() else []
    if not found and not pickled:
        problems.append(_wrong(folder, "expected model.safetensors or pytorch_model.bin, got neither"))
    return found or pickled


def _indexed(folder: Path, index: Path, problems: list[Problem]) -> list[Path]:
    try:
        named = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        problems.append(_wrong(index, f"expected an index with a weight_map, got {type(error).__name__}"))
        return []
    # A name with a folder in it would lead out of the checkpoint.
    good = [name for name in named if isinstance(name, str) and Path(name).name == name]
    lost = [name for name in named if name not in good or not (folder / name).is_file()]
    problems += [_wrong(index, f"names {shown(name)}, which is not in the folder") for name in lost]
    return [folder / name for name in good if name not in lost]


def _safetensors(file: Path, problems: list[Problem]) -> dict[str, Tensor]:
    try:
        return safetensors_in(file)
    except ForeignFileError as error:
        problems += [_wrong(file, problem.message) for problem in error.problems]
        return {}


def _pytorch(file: Path, problems: list[Problem]) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            # That another program's pickle is unusual is no news: it is read, or refused below.
            warnings.simplefilter("ignore")
            content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        problems.append(
            Problem(
                where=file.name,
                kind="pickle",
                message=f"expected tensors alone, got {met_in(error)}, which is not run",
                repair="ask its maker for safetensors: opening a pickle runs whatever code is in it",
            )
        )
        return {}
    except (OSError, ValueError, RuntimeError, EOFError, AttributeError, KeyError, TypeError) as error:
        problems.append(_wrong(file, f"expected a file of torch.save, got {_first_line(error)}"))
        return {}
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        problems.append(_wrong(file, f"expected tensors by name, got {shown(type(content).__name__)}"))
        return {}
    return {str(name): value for name, value in content.items()}


def _first_line(error: Exception) -> str:
    return next(
        (line.strip()[:200] for line in str(error).splitlines() if line.strip()), type(error).__name__
    )


def _wrong(file: Path, message: str) -> Problem:
    return Problem(
        where=file.name or str(file),
        kind="weights",
        message=message,
        repair="give the folder of a draft with config.json and its weights; copy it again if it was cut off",
    )
