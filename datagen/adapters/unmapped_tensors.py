"""The tensors of somebody's file as torch's own, read at their places, never mapped; or their shapes alone.

A state is most of a file. Who looks at a million files wants the tokens and masks, which are integers: with
`states=False` a tensor of floats has its dtype and shape, and values that say nothing.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from datagen.adapters.errors import refused
from datagen.adapters.placed_safetensors import Placed, placed_in
from datagen.adapters.read_at import read_at

_DTYPES: Mapping[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


class UnplacedError(Exception):
    """A tensor of which torch does not say where in its file it lies."""


def safetensors_in(file: Path, *, states: bool = True) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; raises `ForeignFileError` for one that is not whole."""
    return {name: _placed_tensor(file, name, placed, states) for name, placed in placed_in(file).items()}


def _placed_tensor(file: Path, name: str, placed: Placed, states: bool) -> Tensor:
    dtype = _DTYPES.get(placed.dtype)
    if dtype is None:
        message = f"expected {name[:80]!r} of {', '.join(_DTYPES)}, got {placed.dtype[:20]}"
        raise refused(file, "layout", message)
    if dtype.is_floating_point and not states:
        return _shape_alone(dtype, placed.shape)
    return _bytes_at(file, placed.end - placed.start, placed.start).view(dtype).reshape(placed.shape)


def with_integers(file: Path, content: object) -> object:
    """Return what torch loaded on the device `meta` with the integers' values, which are read now.

    Raises `UnplacedError` where it holds a tensor whose place is not known, and `ForeignFileError` where the
    file ends before one.
    """
    if isinstance(content, Tensor):
        return _with_values(file, content)
    if isinstance(content, Mapping):
        return {key: with_integers(file, value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_integers(file, value) for value in content]
    if isinstance(content, tuple):
        return tuple(with_integers(file, value) for value in content)
    return content


def check_plain(file: Path, content: object) -> None:
    """Raise `ForeignFileError` where a file holds a tensor that is no plain array of numbers in memory."""
    if isinstance(content, Tensor):
        if not _is_plain(content) or content.device.type != "cpu":
            layout = str(content.layout).removeprefix("torch.")
            kind = "nested" if content.is_nested else "quantised" if content.is_quantized else layout
            message = f"expected plain tensors with values, got a {kind} one on {content.device.type}"
            raise refused(file, "layout", message, "save its numbers as they are used")
    elif isinstance(content, Mapping):
        for value in content.values():
            check_plain(file, value)
    elif isinstance(content, list | tuple):
        for value in content:
            check_plain(file, value)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def _with_values(file: Path, tensor: Tensor) -> Tensor:
    if not _is_plain(tensor):
        raise UnplacedError
    start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if start is None:
        raise UnplacedError
    if tensor.dtype.is_floating_point:
        return _shape_alone(tensor.dtype, tensor.shape)
    values = _bytes_at(file, tensor.untyped_storage().nbytes(), start).view(tensor.dtype)
    return values.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def _shape_alone(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros((), dtype=dtype).expand(shape)


def _bytes_at(file: Path, n_bytes: int, start: int) -> Tensor:
    if start + n_bytes > (size_bytes := file.stat().st_size):
        message = f"expected {n_bytes:,} bytes from byte {start:,}, got a file of {size_bytes:,}"
        raise refused(file, "damaged", message, "copy it again: it was cut off")
    return torch.from_numpy(read_at(file, (n_bytes,), np.uint8, start))
