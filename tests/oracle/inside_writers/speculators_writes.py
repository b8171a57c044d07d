"""speculators' own v1 generator (0.4.0), run over a vLLM for CPUs; started by `writers.py`.

Its own: the generator with its scheduling, the worker extension that captures, and what a row holds. The
command that saves rows (`scripts/data_generation_offline.py`) is in no release, and its loop is here: the
results of a batch in the order that they come, each with the mask of its place in the batch. vLLM 0.32 is
much younger than the one it was written for: what has moved since is put in, and what a CPU needs.

Usage: MODEL ROWS.json OUT SIZE ..., where rows hold `input_ids` and `loss_mask`; OUT gets a folder a size
of batches.
"""

import importlib
import json
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

BLOCK_BYTES = 2**30
"""What an accelerator would have free: enough for a cache of these short rows."""


def packages() -> None:
    """Make its packages importable without what their own imports bring along."""
    (root,) = [Path(path) / "speculators" for path in sys.path if (Path(path) / "speculators").is_dir()]
    for name in ("speculators", "speculators.utils", "speculators.data_generation"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package


packages()  # in the worker's process, too, which imports this file again


def executor(vllm_config: Any) -> Any:
    """Start the worker, and settle how its cache lies in memory, which the engine's core does since."""
    started = MultiprocExecutor(vllm_config=vllm_config)
    register_all_kvcache_specs(vllm_config)
    specs = [spec for worker in started.get_kv_cache_specs() for spec in worker.values()]
    layout = resolve_kv_cache_layout(vllm_config, started.get_supported_kv_cache_layouts(), specs)
    started.set_kv_cache_layout(layout.name)
    return started


def generator(model: str) -> Any:
    module: Any = importlib.import_module("speculators.data_generation.vllm_hidden_states_generator")
    request = module.Request

    @wraps(request)
    def without_ending(*, eos_token_id: int | None, **more: Any) -> Any:
        return request(**more)

    module.Request = without_ending
    module.MultiprocExecutor = executor
    module.VLLM_BLOCK_SIZE = 32  # what attention on a CPU takes
    module.mem_get_info = lambda: (BLOCK_BYTES, BLOCK_BYTES)
    return module.VllmHiddenStatesGenerator(model, max_model_len=256)


def main() -> None:
    model, rows, out = (
        sys.argv[1],
        json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")),
        Path(sys.argv[3]),
    )
    made = generator(model)
    for size in map(int, sys.argv[4:]):
        folder = out / str(size)
        folder.mkdir(parents=True)
        write(made, rows, folder, size)


def write(made: Any, rows: list[dict[str, list[int]]], folder: Path, size: int) -> None:
    index = 0
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        results = made.generate([row["input_ids"] for row in some])
        for row, result in zip(some, results, strict=True):
            result["loss_mask"] = torch.tensor(row["loss_mask"])
            torch.save(result, folder / f"data_{index}.pt")
            index += 1


if __name__ == "__main__":
    main()
