"""The ends of a model that is loaded: its own modules, copied to host memory where they lie elsewhere.

On the device their few rows would wait for the forwards that are queued there.
"""

import copy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datagen.adapters.tensor_arrays import array_of, tensor_of
from datagen.engines.errors import OpeningError
from datagen.engines.proof import Anatomy
from schemas.problem import Problem

CPU = torch.device("cpu")


class LoadedEnds:
    """Embedding, final norm and lm_head of a proven model; see `datagen.engines.base.Ends`."""

    def __init__(self, embedding: nn.Module, norm: nn.Module, head: Tensor, dtype: torch.dtype) -> None:
        """Keep modules that lie in host memory, and the weight [V, H] of the lm_head."""
        self._embedding = embedding
        self._norm = norm
        self._head = head
        self._dtype = dtype

    @classmethod
    def of(cls, anatomy: Anatomy, dtype: torch.dtype) -> Self:
        """Return the ends of a model; raises `OpeningError` for a head that is no plain matrix, and for
        weights that no device holds (offloaded to disk)."""
        embedding: nn.Module = anatomy.decoder.body.get_input_embeddings()
        problems = []
        if type(anatomy.head) is not nn.Linear:
            message = f"expected a linear layer, got {type(anatomy.head).__name__}"
            problems.append(Problem(where="lm_head", kind="model", message=message))
        problems += [
            Problem(where=name, kind="model", message="expected weights in memory, got offloaded ones")
            for name, module in (
                ("embed", embedding),
                ("final norm", anatomy.norm),
                ("lm_head", anatomy.head),
            )
            if any(one.device.type == "meta" for one in module.parameters())
        ]
        if problems:
            raise OpeningError("the ends of the model cannot be had", problems)
        here = _in_host_memory
        weight: Any = anatomy.head.weight
        return cls(here(embedding), here(anatomy.norm), weight.detach().to(CPU), dtype)

    def embed(self, token_ids: NDArray[np.integer]) -> NDArray[np.generic]:
        with torch.inference_mode():
            rows = self._embedding(torch.from_numpy(np.asarray(token_ids, np.int64))[None])[0].to(self._dtype)
        return np.asarray(array_of(rows))

    def norm(self, final: NDArray[np.generic]) -> NDArray[np.float32]:
        rows = tensor_of(final)
        with torch.inference_mode():
            normed: Tensor = self._norm(rows[None])[0]
        return np.asarray(normed.float().numpy())

    def head(self, token_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        ids = torch.from_numpy(np.asarray(token_ids, np.int64))
        return np.asarray(self._head.index_select(0, ids).float().numpy())


def _in_host_memory(module: nn.Module) -> nn.Module:
    if all(one.device.type == "cpu" for one in module.parameters()):
        return module
    return copy.deepcopy(module).to(CPU)
