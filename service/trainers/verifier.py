"""The model that a trainer takes the head and the norm from, held against the target that the states are of.

Two models of one shape, a base model and its instruct model say, train a draft that learns what neither says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from datagen.engines.weights import weights_digest
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

    They can be where it is a folder and its digest is made as the target's was.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        yield _not_compared(target, f"{model}, which is not a folder")
        return
    digest = weights_digest(folder)
    if isinstance(digest, Problem):
        yield _not_compared(target, f"{digest.where}: {digest.message}")
    elif digest.method != target.weights.method:
        yield _not_compared(
            target, f"a digest of another kind ({digest.method}, not {target.weights.method})"
        )
    elif digest != target.weights:
        message = (
            f"expected the weights of {target.model_id} ({target.weights.sha256[:12]}), which the states are "
            f"of, got {digest.sha256[:12]}: the draft would learn from another model's head and norm"
        )
        yield Problem(where=FLAG, kind="weights", message=message, repair=_the_model(target))


def _not_compared(target: Target, got: str) -> Problem:
    message = f"weights were not compared: expected a folder of {target.model_id}'s, got {got}"
    repair = f"see to it that it is {target.model_id}: by its shape it could be another"
    return Problem(where=FLAG, kind="weights", message=message, repair=repair, severity="note")


def _the_model(target: Target) -> str:
    return f"give the model that the states are of: {target.model_id}"
