"""Datasets, draft configs and wiring files of a 61-layer target, as the incident's team had them."""

import json
from collections.abc import Sequence
from pathlib import Path

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from schemas.schema import Schema
from schemas.target import Target, WeightsDigest
from tests.builders import random_sample, tiny_target

N_LAYERS = 61
SAVED = ("embed", "layer3", "layer31", "layer59")
"""What was saved, as a list without names."""
MEANT = ("layer3", "layer31", "layer59", "final")


def kimi(model_type: str = "kimi_k25", weights: str = "2") -> Target:
    """Return a target of Kimi's depth and types; `weights` tells one from another of the same shape."""
    return tiny_target(n_layers=N_LAYERS).model_copy(
        update={
            "model_id": f"models/{model_type}",
            "model_type": model_type,
            "weights": WeightsDigest(method="sampled_safetensors", sha256=weights * 64),
        }
    )


def make_dataset(root: Path, names: Sequence[str], target: Target | None = None, name: str = "states") -> str:
    """Make a dataset of one sample, and return how it is written on a command line."""
    schema = Schema.declare(target or kimi(), names, "bfloat16")
    door = LocalDoor(root)
    dataset = Dataset.create(door, name, schema, exist_ok=True)
    with PartWriter(door, name, schema, "run") as writer:
        writer.add(random_sample(schema, 5, seed=1))
        part = writer.close()
    dataset.commit([part], [], run_id="run")
    return f"{root}/{name}"


def draft_config(folder: Path, ids: object = (3, 31, 59), nested: bool = True) -> Path:
    """Write a draft's config as it is exported: layer ids where SGLang reads them, or at the top."""
    content: dict[str, object] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 1000,
        "draft_vocab_size": 100,
    }
    written = {"eagle_aux_hidden_state_layer_ids": list(ids) if isinstance(ids, tuple) else ids}
    content |= {"eagle_config": written} if nested else written
    file = folder / "draft.json"
    file.write_text(json.dumps(content))
    return file


def wiring_file(
    folder: Path, fc: Sequence[str] = MEANT[:-1], target: str = "final", norm: bool = True, more: str = ""
) -> Path:
    """Write the wiring of a trainer of one's own."""
    file = folder / "wiring.toml"
    file.write_text(
        f'[wiring]\nname = "mine"\nkind = "trainer"\nfc = {json.dumps(list(fc))}\n{more}\n'
        f'[wiring.target]\ntensor = "{target}"\napplies_norm = {str(norm).lower()}\n'
    )
    return file
