"""The ends of a model from its files alone: embedding rows, final norm and lm_head, without its layers.

For whoever has hidden states and not the model that made them: engines whose model runs elsewhere, a replay,
an export. The norm is run as its class in transformers runs it (RMSNorm, LayerNorm, Gemma's 1 + w).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from datagen.engines.architecture import architecture_of, read_config
from datagen.engines.end_modules import find_ends, refusal
from datagen.engines.loading import TORCH_DTYPES
from datagen.engines.named_weights import NamedWeights
from schemas.problem import Problem
from schemas.schema import DType

LOGIT_BYTES = 64 << 20
"""Bytes of logits that the head makes at a time."""


class TargetHead:
    """A model's embedding, final norm and lm_head in `dtype`, each read when it is first needed."""

    def __init__(self, folder: Path, config: Any, dtype: DType) -> None:
        """Find the modules and their weights; raises `OpeningError` with what cannot be told from the files.

        An embedding that is more than a table is told by `embedding_problem` alone.
        """
        self._dtype = TORCH_DTYPES[dtype]
        self._files = NamedWeights(folder)
        self._ends = find_ends(config)
        self._sizes = architecture_of(config)
        self.embedding_problem = self._ends.embedding_problem
        self._tables = {"embedding": self._ends.embedding_path, "lm_head": self._ends.head_path}
        tables = (f"{path}.weight" for path in self._tables.values())
        self._keys = self._files.find([*tables, *self._ends.norm_names.values()])
        self._check()
        self._read: dict[str, Tensor] = {}
        self._norm_is_read = False

    @classmethod
    def of(cls, folder: Path, *, dtype: DType = "float32") -> Self:
        """Return the ends of the model in `folder`; raises `OpeningError` as opening does."""
        return cls(folder, read_config(folder, trust_remote_code=False), dtype)

    def _check(self) -> None:
        n_rows, width = self._sizes.vocab_size, self._sizes.hidden_size
        problems = []
        for name, path in self._tables.items():
            shape = self._files.shape(self._keys[f"{path}.weight"])
            if len(shape) != 2 or shape[0] < n_rows or shape[1] != width:
                message = f"expected {n_rows} rows of {width}, got {list(shape)}"
                problems.append(Problem(where=name, kind="model", message=message))
        if problems:
            raise refusal(problems)

    @property
    def embedding(self) -> Tensor:
        """The embedding table, `[V, H]`."""
        return self._table("embedding")

    @property
    def lm_head(self) -> Tensor:
        """The lm_head, `[V, H]`; the embedding itself where the two are tied."""
        return self._table("lm_head")

    def embed(self, token_ids: Sequence[int] | NDArray[np.int32]) -> Tensor:
        """Return rows of the embedding table, `[T, H]`."""
        return self.embedding.index_select(0, torch.from_numpy(np.asarray(token_ids, np.int64)))

    @torch.inference_mode()
    def norm(self, states: Tensor) -> Tensor:
        """Return the final norm of states `[N, H]`."""
        module = self._ends.norm
        if not self._norm_is_read:
            state = {
                name: self._files.read(self._keys[path]).to(self._dtype)
                for name, path in self._ends.norm_names.items()
            }
            module.load_state_dict(state, assign=True)
            module.eval()
            self._norm_is_read = True
        return torch.as_tensor(module(states.to(self._dtype)))

    @torch.inference_mode()
    def logits(self, states: Tensor, *, norm: bool = True, ids: Tensor | None = None) -> Tensor:
        """Return lm_head of states `[N, H]`, of the token `ids` alone where they are given: `[N, V]`.

        Without `norm` the states are taken for normed already. Caps and scales that some models put on their
        logits are left out: they change no argmax.
        """
        rows = self.norm(states) if norm else states.to(self._dtype)
        return functional.linear(rows, self.lm_head if ids is None else self.lm_head[ids])

    def argmax(self, states: Tensor, *, norm: bool = True) -> Tensor:
        """Return the target's own next token by each state `[N, H]`: int64 `[N]`."""
        return torch.cat([self.logits(some, norm=norm).argmax(-1) for some in self._in_pieces(states)])

    def ties(self, final: Tensor) -> NDArray[np.bool_]:
        """Return by each state `[N, H]` whether another token is as likely as the argmax, but for a rounding.

        An engine may norm its last states before they are rounded to what is stored.
        """
        least = torch.finfo(self._dtype).eps
        best = [self.logits(some).topk(2).values.float() for some in self._in_pieces(final)]
        tied = torch.cat([two[:, 0] - two[:, 1] <= least * two[:, 0].abs() for two in best])
        return np.asarray(tied.numpy(), np.bool_)

    def _in_pieces(self, states: Tensor) -> Sequence[Tensor]:
        chunk = max(1, LOGIT_BYTES // (len(self.lm_head) * self.lm_head.element_size()))
        return torch.split(states, chunk)

    def choose(self, final: Tensor) -> NDArray[np.int32]:
        """Return `argmax(lm_head(norm(final)))` `[T]` as a capture says it."""
        return np.asarray(self.argmax(final).to(torch.int32).numpy(), np.int32)

    def _table(self, name: str) -> Tensor:
        path = self._tables[name]
        if path not in self._read:
            whole = self._files.read(self._keys[f"{path}.weight"])
            self._read[path] = whole[: self._sizes.vocab_size].to(self._dtype)
        return self._read[path]

    def close(self) -> None:
        """Drop the weights."""
        self._read.clear()
