"""The wirings that drafts are trained under: the right one, and the faults that people have really made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.wiring import TargetRole

MEANT = ("layer2", "layer15", "layer27")
Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Wiring:
    """One of them, by a name for files and tables."""

    name: str
    trained: Candidate

    @property
    def names(self) -> tuple[str, ...]:
        """The stored tensors that its list is made of."""
        target = self.trained.target.tensor
        return tuple(dict.fromkeys([*self.trained.inputs.fc, FINAL if target == FINAL_NORMED else target]))

    def slots(self, tensors: Mapping[str, Tensor], norm: Norm) -> Sequence[Tensor]:
        """Return the list that speculators' trainer reads, `[T, H]` a slot: it norms the last one itself."""
        inputs, role = self.trained
        n_tokens = len(tensors[inputs.fc[0]])
        places = torch.arange(n_tokens).add(inputs.moved).clamp(0, n_tokens - 1)
        if role.tensor == FINAL_NORMED:
            target = norm(tensors[FINAL]).to(tensors[FINAL].dtype)
        else:
            target = tensors[role.tensor]
        return [*(tensors[name][places] for name in inputs.fc), target]


def _of(name: str, fc: Sequence[str] = MEANT, target: str = FINAL, moved: int = 0) -> Wiring:
    role = TRUE_TARGET if target == FINAL else TargetRole(tensor=target, applies_norm=True)
    return Wiring(name, Candidate(Inputs(tuple(fc), moved=moved), role))


WIRINGS = (
    _of("right"),
    _of("swapped", ("layer15", "layer2", "layer27")),
    _of("reversed", ("layer27", "layer15", "layer2")),
    _of("embed-first", ("embed", "layer2", "layer15")),
    _of("stale", moved=-1),
    _of("normed-twice", target=FINAL_NORMED),
    _of("middle-target", target="layer15"),
    _of("incident", ("embed", "layer2", "layer15"), "layer27"),
)
