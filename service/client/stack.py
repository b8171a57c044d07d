"""Tensors of a sample as one array `[T, K, H]`, as trainers stack them: each byte is written there once.

Bytes arrive piece by piece, are summed while they lie in the processor's cache, and go from there into their
slot. Fetching whole tensors first, and stacking them then, costs a trainer's loader a fifth of its speed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.final_norm import apply_norm
from schemas.boundary import FINAL
from schemas.errors import SchemaError
from schemas.final_norm import FinalNorm, derivable, derived_spec
from schemas.problem import Problem
from schemas.schema import Schema, TensorSpec
from service.client.rows import BITS

Planes = Mapping[str, NDArray[np.uint8]]
"""Where each array's bytes go, by name: `[T, bytes of a row]`; a tensor's rows lie apart from one another."""

MakePlanes = Callable[[int], Planes]
"""Makes the planes of a sample of so many tokens; called again when a sample is asked for again."""

MakeStates = Callable[[int, int, int, str], NDArray[np.generic]]
"""Makes a writable, contiguous `[T, K, H]` array of a dtype's bits, for a number of tokens."""


class Stack(NamedTuple):
    """`states` `[T, K, H]`, of bfloat16 the bits as uint16, and the token columns `[T]` by name."""

    states: NDArray[np.generic]
    tokens: Mapping[str, NDArray[np.generic]]


def new_states(n_tokens: int, n_slots: int, width: int, dtype: str) -> NDArray[np.generic]:
    """Make states in memory of their own."""
    return np.empty((n_tokens, n_slots, width), BITS[dtype])


@dataclass
class Stacking:
    """Tensors `names` and token columns `columns` of a schema, to be stacked.

    Raises `SchemaError` where tensors are not of one dtype and width, or one is named twice.
    """

    schema: Schema
    names: Sequence[str]
    columns: Sequence[str]
    make: MakeStates = new_states
    norm: FinalNorm | None = None
    """Of the target, where `final_normed` is not stored but made of `final`, in its slot."""
    made: Stack | None = None

    def __post_init__(self) -> None:
        made = derivable(self.schema, self.norm)
        specs = [derived_spec(self.schema) if n in made else self.schema.tensor(n) for n in self.names]
        slots = {name: slot for slot, name in enumerate(self.names)}
        self._normed = next((slots.pop(name) for name in made if name in slots), None)
        if self._normed is not None:
            slots.setdefault(FINAL, self._normed)
        self._slots = slots
        kinds = {(spec.dtype, spec.width) for spec in specs}
        if len(kinds) != 1 or len(set(self.names)) != len(self.names):
            told = ", ".join(f"{spec.name} {spec.dtype}[{spec.width}]" for spec in specs)
            message = f"expected different tensors of one dtype and width, got {told or 'none'}"
            raise SchemaError("nothing that stacks", [Problem(where="names", kind="stack", message=message)])
        self._spec: TensorSpec = specs[0]
        self._dtypes = {column.name: column.dtype for column in self.schema.token_columns}

    def planes(self, n_tokens: int) -> Planes:
        """Make the arrays of a sample, and return where their bytes go."""
        states = self.make(n_tokens, len(self.names), self._spec.width, self._spec.dtype)
        tokens = {name: np.empty(n_tokens, BITS[self._dtypes[name]]) for name in self.columns}
        self.made = Stack(states, tokens)
        flat = states.view(np.uint8).reshape(n_tokens, len(self.names), self._spec.row_bytes)
        slots = {name: flat[:, slot] for name, slot in self._slots.items()}
        return slots | {name: values.view(np.uint8).reshape(n_tokens, -1) for name, values in tokens.items()}

    def done(self) -> Stack:
        """Return what was made, after its planes were filled."""
        if self.made is None:
            raise ValueError("expected planes that were made, got none")
        if self.norm is not None and self._normed is not None:
            states = self.made.states
            final, normed = states[:, self._slots[FINAL]], states[:, self._normed]
            apply_norm(self.norm, final, self._spec.dtype, out=normed)
        return self.made
