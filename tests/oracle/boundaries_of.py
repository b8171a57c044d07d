"""Which tensor of the target a given one *is*: by its numbers, token by token, against transformers.

Every tensor that has a name (`embed`, `layer1` ... `final`, `final_normed`) is computed by transformers in
float32. A tensor is one of them only where every token agrees and every other name is far off: neighbouring
layers differ by some percent only, so an agreement that is merely good proves nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from schemas.boundary import FINAL, FINAL_NORMED, name_of

SAME = 1e-4
"""The largest distance of one token, relative to its norm, between two float32 computations of one tensor."""
FAR = 100 * SAME
"""The least that the median token of any other tensor must be off."""

Named = dict[str, torch.Tensor]


class NoSuchTensorError(AssertionError):
    """The given tensor is none that has a name, or two names are too close to tell."""


@dataclass(frozen=True)
class Found:
    """A tensor's name, its worst token's distance to it, and the nearest other name with its median's."""

    name: str
    distance: float
    nearest: str
    nearest_distance: float


def named_tensors(model: Path, prompts: list[list[int]]) -> list[Named]:
    """All named tensors [token, hidden] of the target, a mapping for each prompt."""
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    last: list[torch.Tensor] = []
    # transformers' last hidden state is normed, so what the last layer writes is taken as it comes out.
    hook = target.model.layers[-1].register_forward_hook(lambda _, __, output: last.append(_first(output)[0]))
    found = []
    with torch.inference_mode():
        for ids in prompts:
            states = target(torch.tensor([ids]), output_hidden_states=True).hidden_states
            n_layers = len(states) - 1
            named = {name_of(b, n_layers): states[b][0] for b in range(n_layers)}
            found.append(named | {FINAL: last.pop(), FINAL_NORMED: states[n_layers][0]})
    hook.remove()
    return found


def _first(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def identify(given: torch.Tensor, named: Named) -> Found:
    """Say which named tensor `given` [token, hidden] is. Raises NoSuchTensorError where it is none."""
    distances = {name: _distances(given, tensor) for name, tensor in named.items()}
    by_median = sorted(distances, key=lambda name: float(distances[name].median()))
    name, nearest = by_median[:2]
    found = Found(name, float(distances[name].max()), nearest, float(distances[nearest].median()))
    if found.distance > SAME or found.nearest_distance < FAR:
        raise NoSuchTensorError(f"expected one tensor within {SAME} and all others beyond {FAR}, got {found}")
    return found


def fc_of(states: torch.Tensor, named: Named) -> tuple[str, ...]:
    """The names of the tensors that lie side by side in `states` [token, n * hidden]."""
    hidden = named[FINAL].shape[1]
    if states.shape[1] % hidden:
        raise NoSuchTensorError(f"expected a multiple of {hidden} in width, got {states.shape[1]}")
    return tuple(identify(part, named).name for part in torch.split(states, hidden, dim=1))


def _distances(given: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """How far each token is off, relative to its norm [token]."""
    off: torch.Tensor = (given - tensor).square().sum(dim=1).sqrt()
    return off / tensor.square().sum(dim=1).sqrt()
