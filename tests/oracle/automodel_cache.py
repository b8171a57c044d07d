"""NeMo Automodel's own cache: its reader as it stands, and what its precompute makes of given states.

Its modules are imported from the wheel without its packages' `__init__`, which load what a cache has no need
of. Its target is wrapped around a model that answers with stored states in place of computing them.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.oracle.borrow import borrow
from tests.oracle.wheels import source

VERSION = "0.7.0"
_PACKAGES = (
    "nemo_automodel",
    "nemo_automodel.shared",
    "nemo_automodel.components",
    "nemo_automodel.components.datasets",
    "nemo_automodel.components.datasets.llm",
)


@contextmanager
def cache_module() -> Iterator[Any]:
    """Its `eagle3_cache`, imported; forgotten at the end."""
    root = source("automodel", VERSION)
    before = set(sys.modules)
    try:
        for name in _PACKAGES:
            package = ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
        yield importlib.import_module("nemo_automodel.components.datasets.llm.eagle3_cache")
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "nemo_automodel":
                del sys.modules[name]


class StoredTarget(nn.Module):
    """A model whose layers write stored states `[1, S, H]` by their number, and whose logits are given."""

    def __init__(self, layers: Mapping[int, Tensor], n_layers: int, logits: Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Writes(layers.get(number)) for number in range(n_layers))
        self.config = SimpleNamespace(num_hidden_layers=n_layers)
        self._logits = logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        for layer in self.layers:
            layer()
        return SimpleNamespace(logits=self._logits)


class _Writes(nn.Module):
    def __init__(self, states: Tensor | None) -> None:
        super().__init__()
        self._states = states

    def forward(self) -> tuple[Tensor | None]:
        return (self._states,)


def precomputed(
    target: nn.Module,
    layer_ids: Sequence[int],
    batch: Mapping[str, Tensor],
    chosen: Tensor,
    dtype: torch.dtype,
    top_k: int,
) -> dict[str, Tensor]:
    """Return what its precompute caches of a batch (`input_ids`, `attention_mask`, `loss_mask`, `[B, S]`)."""
    root = source("automodel", VERSION) / "components"
    eagle = root / "speculative" / "eagle"
    wrapper = borrow(eagle / "target.py", "HFEagle3TargetModel", {"Eagle3TargetBatch": SimpleNamespace})
    made = wrapper(target, list(layer_ids)).generate_batch(**batch)
    cache = root / "datasets" / "llm" / "eagle3_cache.py"
    given = {
        "_compute_target_distribution": borrow(eagle / "core.py", "_compute_target_distribution"),
        "compress_target_probs": borrow(cache, "compress_target_probs"),
        "is_compressed": borrow(cache, "is_compressed"),
    }
    compute = borrow(root / "speculative" / "precompute_eagle3.py", "_compute_batch_cache", given)
    known = torch.zeros(made.logits.shape[-1], dtype=torch.bool)
    known[chosen] = True
    cached: dict[str, Tensor] = compute(made, chosen, known, dtype, top_k)
    return cached


def read_all(module: Any, folder: Path) -> list[dict[str, Tensor]]:
    """Return every sample as its own dataset reads it, in its order."""
    dataset = module.CachedEagle3Dataset(str(folder))
    return [dataset[number] for number in range(len(dataset))]
