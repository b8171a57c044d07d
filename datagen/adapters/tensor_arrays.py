"""torch tensors as numpy arrays and back, of the same memory, bfloat16 too."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datagen.store.dtypes import NUMPY_DTYPES

_BFLOAT16 = NUMPY_DTYPES["bfloat16"]


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's values as an array of the same dtype.

    >>> array_of(torch.tensor([1.5], dtype=torch.bfloat16))
    array([1.5], dtype=bfloat16)
    """
    return view_of(tensor.contiguous())


def view_of(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's own memory as an array of the same dtype, of the same strides."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(_BFLOAT16)
    return tensor.numpy()


def tensor_of(array: NDArray[np.generic]) -> Tensor:
    """Return an array's values as a tensor of its dtype, of the same memory; a read-only one is copied."""
    array = np.require(array, requirements=["C", "W"])
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
