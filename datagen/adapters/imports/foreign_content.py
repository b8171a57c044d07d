"""What else a file of states holds: its loss mask, states of 8 bits, slots that lie side by side."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.adapters.errors import refused
from datagen.adapters.foreign_layouts import SCALES
from datagen.adapters.foreign_samples import Slot
from schemas.schema import DType

MASK = "loss_mask"
STATES = "hidden_states"
_TORCH_DTYPES: Mapping[DType, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def slots_apart(slots: Sequence[Slot], width: int) -> Iterator[Slot]:
    """Yield slots of the target's width: one that is k times as wide is k slots, side by side in its rows.

    A slot of another width is yielded as it is: who ingests says what is wrong with it.
    """
    for slot in slots:
        got = slot.rows.shape[1]
        if got == width or got % width:
            yield slot
            continue
        for first in range(0, got, width):
            yield Slot(f"{slot.name}[:, {first}:{first + width}]", slot.rows[:, first : first + width])


def mask_of(file: Path, content: Mapping[object, object]) -> NDArray[np.generic] | None:
    """Return the loss mask that lies in a file, `None` where it has none; raises `ForeignFileError`.

    An axis of one sample before it is taken off.
    """
    if MASK not in content:
        return None
    value = content[MASK]
    if isinstance(value, list) and all(isinstance(number, int) for number in value):
        value = torch.tensor(value, dtype=torch.int64)
    if isinstance(value, torch.Tensor) and value.ndim > 1 and value.numel() == max(value.shape):
        value = value.reshape(-1)
    if not isinstance(value, torch.Tensor) or value.ndim != 1 or value.is_floating_point():
        got = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        kind = f" {str(value.dtype).removeprefix('torch.')}" if isinstance(value, torch.Tensor) else ""
        raise refused(file, "loss_mask", f"expected integers [T], got{kind} {got}")
    mask: NDArray[np.generic] = value.numpy()
    return mask


def with_whole_states(file: Path, content: object, dequantise: DType | None) -> object:
    """Return a file's content with states of 8 bits widened as their own library does it.

    That is `fp8.to(dtype) * scale.to(dtype)`. Raises `ForeignFileError` where there are such and nobody asked
    for them: they are not the target's own states any more, and no comparison would say so. Source:
    hs_connectors 0.9.0, `fp8_utils.py`.
    """
    if not isinstance(content, Mapping):
        return content
    narrow = [
        key
        for key, value in content.items()
        if isinstance(value, torch.Tensor) and value.dtype in _EIGHT_BITS
    ]
    if not narrow and SCALES not in content:
        return content
    if dequantise is None:
        message = f"expected states of 16 bits or more, got {', '.join(map(str, narrow or [SCALES]))} of 8"
        repair = "give --dequantise bfloat16 to take what they are widened to, which is not what was computed"
        raise refused(file, "float8", message, repair)
    scales, dtype = content.get(SCALES), _TORCH_DTYPES[dequantise]
    if not isinstance(scales, torch.Tensor):
        raise refused(file, "float8", f"expected {SCALES} beside states of 8 bits, got none")
    whole = {key: value for key, value in content.items() if key != SCALES}
    for key in narrow:
        value = content[key]
        assert isinstance(value, torch.Tensor)
        whole[key] = value.to(dtype) * scales.to(dtype)
    return whole
