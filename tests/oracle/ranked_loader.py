"""speculators' own loaders on several ranks, every row that is read written down: a script for torchrun.

`python -m tests.oracle.ranked_loader SOURCE PREPARED VERIFIER OUT WORKERS EPOCHS`, in an environment that has
speculators. A SOURCE that is a folder is an export's, and read by its own `FileTransfer`.
"""

import hashlib
import importlib
import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from deploy.demo.incident.cpu_trainer import answer_for_ranks
from service.trainers.launching import Asked, plan_speculators

OUT = "RANKED_LOADER_OUT"
"""Where rows are written down: spawned workers import this module anew, and have the environment alone."""


def record_rows() -> None:
    """Let its dataset write down each row that it reads, what it made of it, and for whom."""
    dataset: Any = importlib.import_module("speculators.train.data").ArrowDataset
    own = dataset._get_raw_data

    def read(self: Any, index: int) -> Any:
        made = own(self, index)
        row = int(self._map_to_file_idx(index))
        seen = {"row": row, "digest": _digest(made), "rank": os.environ.get("RANK", "0"), "pid": os.getpid()}
        with Path(f"{os.environ[OUT]}.{os.getpid()}").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(seen) + "\n")
        return made

    dataset._get_raw_data = read


def _digest(made: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(made):
        if isinstance(made[name], torch.Tensor):
            digest.update(f"{name} {made[name].dtype} {tuple(made[name].shape)}".encode())
            digest.update(made[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_epochs(folder: Path, transfer: Any, ratio: float, workers: int, epochs: int) -> None:
    """Go through both of its loaders, as its trainer does, and ask for every batch."""
    distributed: Any = importlib.import_module("speculators.train.distributed")
    loaders: Any = importlib.import_module("speculators.train.dataloader")
    models: Any = importlib.import_module("speculators.models.eagle3.data")
    distributed.maybe_setup_distributed()
    both = loaders.create_train_val_loaders(
        data_path=str(folder),
        total_seq_len=256,
        hidden_states_dtype=torch.bfloat16,
        transfer=transfer,
        vllm_endpoint="",
        on_missing="raise",
        verifier_name_or_path="",
        request_timeout=None,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=8,
        num_target_layers=3,
        num_workers=workers,
        prefetch_factor=2,
        preprocess=models.shift_batch,
        train_data_ratio=ratio,
    )
    for loader in both:
        loader.pin_memory = False
        for epoch in range(epochs):
            loader.batch_sampler.set_epoch(epoch)
            for _ in loader:
                pass
    distributed.maybe_destroy_distributed()


def main(source: str, prepared: str, verifier: str, workers: str, epochs: str) -> None:
    """Read all epochs, live or from files."""
    if (Path(source) / "hidden_states").is_dir():
        transfer = importlib.import_module("hs_connectors").FileTransfer(Path(source) / "hidden_states")
        read_epochs(Path(source), transfer, float(prepared), int(workers), int(epochs))
        return
    launch = plan_speculators(Asked(source, Path(prepared)), ["--verifier-name-or-path", verifier])
    words = launch.words
    backend: Any = importlib.import_module("service.trainers.speculators_backend").StrataBackend
    given = Namespace(strata_source=words[words.index("--strata-source") + 1])
    ratio = float(words[words.index("--train-data-ratio") + 1])
    read_epochs(Path(prepared), backend.from_train_args(given, prepared), ratio, int(workers), int(epochs))


if OUT in os.environ:
    record_rows()
if __name__ == "__main__":
    answer_for_ranks()
    main(*sys.argv[1:])
