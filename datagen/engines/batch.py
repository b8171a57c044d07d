"""A batch on its way in: padded to the right, and the way back to rows without padding.

Shapes: B samples, S padded length, H width, R = sum of lengths, rows without padding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Padded(NamedTuple):
    """A batch for the model: `ids` [B, S] and `rows` [R], where in B*S the real tokens stand.

    `rows` is None where nothing is padded.
    """

    ids: Tensor
    rows: Tensor | None
    n_rows: int

    def unpadded(self, hidden: Tensor) -> Tensor:
        """Return the real tokens' rows [R, H] of `hidden` [B, S, H], samples end to end, in new memory."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        if self.rows is None:
            return flat.clone(memory_format=torch.contiguous_format)
        return flat.index_select(0, self.rows.to(flat.device, non_blocking=True))


def padded(samples: Sequence[NDArray[np.int32]], device: torch.device) -> Padded:
    """Return the samples padded to the right with id 0 on `device`.

    On CUDA both tensors go up from pinned memory: a copy from pageable memory would wait for the device.
    """
    lengths = [len(sample) for sample in samples]
    n_columns = max(lengths)
    ids = np.zeros((len(samples), n_columns), dtype=np.int64)
    for row, sample in enumerate(samples):
        ids[row, : len(sample)] = sample
    ragged = min(lengths) < n_columns
    rows = np.concatenate([np.arange(n) + row * n_columns for row, n in enumerate(lengths)])
    return Padded(
        _uploaded(ids, device), _uploaded(rows.astype(np.int64), device) if ragged else None, sum(lengths)
    )


def _uploaded(values: NDArray[np.int64], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
