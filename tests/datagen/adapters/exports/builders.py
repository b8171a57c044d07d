"""Datasets to export: a few samples of several conversations, in more than one part, with splits."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from schemas.schema import DType, Schema
from schemas.target import Target
from tests.builders import random_sample, tiny_target

NAMES = ("embed", "layer2", "layer4", "layer5", "final")
"""Of 8 layers: speculators' default input is layer2, layer4, layer5."""
LENGTHS = (5, 130, 1, 64, 65, 33, 7, 20, 90, 12)


def make_dataset(
    root: Path,
    names: Sequence[str] = NAMES,
    lengths: Sequence[int] = LENGTHS,
    dtype: DType = "bfloat16",
    target: Target | None = None,
    conversation: str = "conversation",
) -> str:
    """Make a dataset in parts of three samples, two samples a conversation, and return its reference."""
    schema = Schema.declare(target or tiny_target(n_layers=8), names, dtype)
    door = LocalDoor(root)
    dataset = Dataset.create(door, "states", schema, exist_ok=True)
    parts = []
    for first in range(0, len(lengths), 3):
        with PartWriter(door, "states", schema, "run") as writer:
            for number in range(first, min(first + 3, len(lengths))):
                writer.add(random_sample(schema, lengths[number], number, f"{conversation}-{number // 2}"))
            parts.append(writer.close())
    dataset.commit(parts, [], run_id="run")
    return f"{root}/states"


def open_dataset(reference: str) -> Dataset:
    """Open what `make_dataset` made."""
    root, _, name = reference.rpartition("/")
    return Dataset.open(LocalDoor(root), name)


def states_of(folder: Path, row: int) -> dict[str, torch.Tensor]:
    """Read a row's states as the trainer does."""
    return load_file(folder / "hidden_states" / f"hs_{row}.safetensors")
