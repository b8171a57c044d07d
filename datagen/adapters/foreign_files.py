"""Somebody's files of unnamed hidden states, read into slots: rows of states, in the order that they lie in.

Shapes: T token ids, R rows of a slot (T, unless the file is wrong), W the width of a slot (H, or several H
side by side), K slots stacked.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.adapters.errors import ForeignFileError, refused
from datagen.adapters.folder_walk import files_below
from datagen.adapters.foreign_layouts import IDS, SCALES, Layout, layout_of
from datagen.adapters.foreign_samples import ForeignSample, Slot
from datagen.adapters.safe_loading import is_known, load
from datagen.adapters.tensor_arrays import array_of, view_of
from schemas.problem import Problem

_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def files_of(paths: Sequence[Path]) -> tuple[list[Path], list[Problem]]:
    """Return the files that were named, and of folders those of tensors at any depth, `2` before `10`."""
    files: list[Path] = []
    problems: list[Problem] = []
    for path in paths:
        if path.is_dir():
            below, unread = files_below(path)
            inside = sorted((file for file in below if is_known(file)), key=_natural)
            files += inside
            problems += unread
            if not inside and not unread:
                message = (
                    "expected files of tensors (.safetensors, .pt, .ckpt, .ckpt.gz), got a folder of none"
                )
                problems.append(Problem(where=str(path), kind="file", message=message))
        else:
            files.append(path)
    return list(dict.fromkeys(files)), problems


def _natural(file: Path) -> list[tuple[int, str]]:
    pieces = re.split(r"(\d+)", str(file))
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def holds_states(file: Path) -> bool:
    """Say whether a file of a folder is one of states; vocabulary maps and token counts lie beside them.

    >>> holds_states(Path("vocab_mapping.pt")), holds_states(Path("hs_0.safetensors"))
    (False, True)
    """
    return file.name not in {"vocab_mapping.pt", "token_freq.pt", "d2t.pt", "t2d.pt"}


def read_foreign(file: Path) -> ForeignSample:
    """Read one file.

    Raises `ForeignFileError` with everything for which it cannot be taken for hidden states.
    """
    return sample_of(file, load(file))


def sample_of(file: Path, content: object, *, views: bool = False) -> ForeignSample:
    """Return what a file that was loaded holds; with `views`, rows are views of it, of its own dtype.

    Raises `ForeignFileError` as `read_foreign` does.
    """
    layout = layout_of(content)
    if layout is None:
        got = (
            ", ".join(map(repr, list(content)[:8])) or "nothing"
            if isinstance(content, Mapping)
            else type(content).__name__
        )
        raise refused(
            file,
            "layout",
            f"expected hidden states as speculators, SpecForge, ModelOpt or EAGLE write them, got {got}",
            "give a mapping with `hidden_states` and `input_ids`, or tensors by Strata's names",
        )
    problems: list[Problem] = []
    ids = _ids(file, content, problems)
    to_rows = view_of if views else _array
    slots = list(_slots(file, content, layout, None if ids is None else len(ids), problems, to_rows))
    if problems:
        raise ForeignFileError(f"{file.name} cannot be read as hidden states", problems)
    return ForeignSample(str(file), layout.title, ids, tuple(slots), layout.last, layout.claims)


def _ids(file: Path, content: object, problems: list[Problem]) -> NDArray[np.int64] | None:
    keys = [key for key in IDS if isinstance(content, Mapping) and key in content]
    if not keys or not isinstance(content, Mapping):
        return None
    value = content[keys[0]]
    if isinstance(value, list) and all(isinstance(number, int) for number in value):
        value = torch.tensor(value, dtype=torch.int64)
    if isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[0] == 1:
        value = value[0]
    if not isinstance(value, torch.Tensor) or value.ndim != 1 or value.is_floating_point() or not len(value):
        message = f"expected token ids [T], got {_described(value)}"
        problems.append(Problem(where=f"{file}: {keys[0]}", kind="token_ids", message=message))
        return None
    return value.to(torch.int64).numpy()


def _slots(
    file: Path,
    content: object,
    layout: Layout,
    n_tokens: int | None,
    problems: list[Problem],
    to_rows: Callable[[torch.Tensor], NDArray[np.generic]],
) -> Iterator[Slot]:
    for key in layout.states:
        value = content[key] if isinstance(content, Mapping) else content
        scales = content.get(SCALES) if isinstance(content, Mapping) else None
        if isinstance(value, torch.Tensor) and isinstance(scales, torch.Tensor):
            value = value.to(torch.float32) * scales
        for name, tensor in _apart(key, value, n_tokens):
            where = f"{file}: {name or 'tensor'}"
            if not isinstance(tensor, torch.Tensor) or tensor.ndim != 2 or tensor.dtype not in _FLOATS:
                message = f"expected states [T, H] of a floating dtype, got {_described(tensor)}"
                problems.append(Problem(where=where, kind="shape", message=message))
            elif not all(tensor.shape):
                message = f"expected rows of states, got a tensor of shape {tuple(tensor.shape)}"
                problems.append(Problem(where=where, kind="shape", message=message))
            else:
                yield Slot(name or "tensor", to_rows(tensor))


def _apart(key: str, value: object, n_tokens: int | None) -> Iterable[tuple[str, object]]:
    """Yield each slot of a value: of a list its members, of a stack `[T, K, H]` or `[K, T, H]` its planes."""
    if isinstance(value, list | tuple):
        return [(f"{key}[{index}]", _squeezed(member)) for index, member in enumerate(value)]
    value = value if n_tokens == 1 else _squeezed(value)
    if not isinstance(value, torch.Tensor) or value.ndim != 3:
        return [(key, value)]
    axis = 0 if n_tokens is not None and value.shape[0] != n_tokens == value.shape[1] else 1
    return [(f"{key}[{index}]", value.select(axis, index)) for index in range(value.shape[axis])]


def _squeezed(value: object) -> object:
    """Return a tensor without a leading axis of one sample: `[1, T, H]` as `[T, H]`."""
    if isinstance(value, torch.Tensor) and value.ndim in (3, 4) and value.shape[0] == 1:
        return value[0]
    return value


def _array(tensor: torch.Tensor) -> NDArray[np.generic]:
    return array_of(tensor.to(torch.float32) if tensor.dtype == torch.float64 else tensor)


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__
