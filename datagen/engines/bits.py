"""Tensors as arrays and back, bit for bit: numpy has no bfloat16 of its own, and torch takes none of it."""

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the memory of a tensor in host memory as an array."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def tensor_of(rows: NDArray[np.generic]) -> Tensor:
    """Return a copy of an array as a tensor."""
    bits = np.ascontiguousarray(rows)
    if bits.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(bits.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(bits.copy())
