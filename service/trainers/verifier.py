"""The model that a trainer takes the head and the norm from, held against the target that the states are of.

Two models of one shape, a base model and its instruct model say, train a draft that learns what neither says.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol

from datagen.engines.weights import missing_shards, weights_digest
from schemas.problem import Problem
from schemas.target import Target

FLAG = "--verifier-name-or-path"


class Shape(Protocol):
    """A model's config, as far as it is compared."""

    num_hidden_layers: int
    hidden_size: int
    vocab_size: int


def shape_problems(target: Target, config: Shape) -> Iterator[Problem]:
    """Yield where the model's sizes are not the target's."""
    expected = {
        "num_hidden_layers": target.n_layers,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
    }
    for name, value in expected.items():
        if (got := getattr(config, name, None)) != value:
            message = f"expected {name} {value}, as {target.model_id} has, got {got}"
            yield Problem(where=FLAG, kind="target", message=message, repair=_the_model(target))


def weights_problems(target: Target, model: str) -> Iterator[Problem]:
    """Yield where the weights of `model` are not the target's; a note where they could not be compared.

    They can be where it is a folder, or a hub id that lies in the hub's cache on this machine: nothing is
    fetched to compare it. The commit that the states are of is taken for the target by its name.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        snapshot = _snapshot(model)
        if snapshot is None:
            yield _not_compared(target, f"{model}, neither a folder nor in the hub's cache on this machine")
            return
        if (model, snapshot.name) == (target.model_id, target.revision):
            return
        folder = snapshot
    if missing := missing_shards(folder):
        yield _not_compared(target, f"{folder} without {len(missing)} of its files ({missing[0]}...)")
        return
    digest = weights_digest(folder, target.weights.method)
    if isinstance(digest, Problem):
        yield _not_compared(target, f"{digest.where}: {digest.message}")
    elif digest.method != target.weights.method:
        yield _not_compared(
            target, f"a digest of another kind ({digest.method}, not {target.weights.method})"
        )
    elif digest != target.weights:
        message = (
            f"expected the weights of {target.model_id} ({target.weights.sha256[:12]}), which the states are "
            f"of, got {digest.sha256[:12]} in {folder}: the draft would learn from another model's head and "
            "norm"
        )
        yield Problem(where=FLAG, kind="weights", message=message, repair=_the_model(target))


def _snapshot(model: str) -> Path | None:
    """Return where a hub id's files lie in the cache, as transformers takes it: its branch `main`."""
    try:
        config = import_module("huggingface_hub").try_to_load_from_cache(model, "config.json")
    except ValueError:  # no hub id
        return None
    return Path(config).parent if isinstance(config, str) else None


def _not_compared(target: Target, got: str) -> Problem:
    message = f"weights were not compared: expected all of {target.model_id}'s, got {got}"
    repair = f"see to it that it is {target.model_id}: by its shape it could be another"
    return Problem(where=FLAG, kind="weights", message=message, repair=repair, severity="note")


def _the_model(target: Target) -> str:
    return f"give the model that the states are of: {target.model_id}"
