"""Finds a model's decoder by structure: no list of model names, no list of attribute names.

The decoder layers are the `ModuleList` as long as the text config says the model is deep; the body is the
innermost `PreTrainedModel` around it. What a structure only suggests, `proof` then holds against numbers.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from datagen.engines.errors import OpeningError
from schemas.problem import Problem


@dataclass(frozen=True)
class Decoder:
    """The layers of a text model, and the module that runs them on token ids without the lm_head."""

    body: Any
    """The innermost `PreTrainedModel` around the layers: token ids in, `last_hidden_state` out."""
    layers: nn.ModuleList
    path: str
    """Where the layers stand in the model, for messages."""


def find_decoder(model: Any) -> Decoder:
    """Return the decoder of `model`.

    Raises `OpeningError` when no stack of modules, or more than one, has the config's number of layers.
    """
    text_config = model.config.get_text_config(decoder=True)
    n_layers = text_config.num_hidden_layers
    found = _stacks(model, n_layers)
    if len(found) > 1:
        # A vision tower may be as deep as the text model; only one of them has the text config.
        found = [decoder for decoder in found if _is_of(decoder.body, text_config)] or found
    if len(found) == 1:
        return found[0]
    message = f"expected one list of {n_layers} decoder layers in {type(model).__name__}, got " + (
        ", ".join(decoder.path for decoder in found) or "none"
    )
    raise OpeningError(
        "the structure of the model is not understood",
        [Problem(where="layers", kind="structure", message=message)],
    )


def _stacks(model: Any, n_layers: int) -> list[Decoder]:
    bodies: list[tuple[str, Any]] = []
    found: list[Decoder] = []
    for path, module in model.named_modules():
        if isinstance(module, PreTrainedModel):
            bodies.append((path, module))
        # A list inside a layer (its experts) can be as long as the stack that holds it.
        nested = any(path.startswith(f"{decoder.path}.") for decoder in found)
        if isinstance(module, nn.ModuleList) and len(module) == n_layers and not nested:
            around = [body for at, body in bodies if at == "" or path.startswith(f"{at}.")]
            found.append(Decoder(around[-1], module, path))
    return found


def _is_of(body: Any, text_config: Any) -> bool:
    return body.config is text_config or body.config.to_dict() == text_config.to_dict()
