"""Small files of other libraries' own writers, made in memory: those say nothing of a disk that is full.

`torch.save` raises no `OSError` then, and `numpy.save` one without a reason.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray


def save_torch(content: object, path: Path) -> None:
    """Write what `torch.save` makes; raises `OSError`."""
    data = BytesIO()
    torch.save(content, data)
    path.write_bytes(data.getbuffer())


def save_array(array: NDArray[np.generic], path: Path) -> None:
    """Write a `.npy` file; raises `OSError`."""
    data = BytesIO()
    np.save(data, array)
    path.write_bytes(data.getbuffer())
