"""Tensors of a sample as one array `[T, K, H]`, as trainers stack them: each byte is written there once.

Bytes arrive piece by piece, are summed while they lie in the processor's cache, and go from there into their
slot. Fetching whole tensors first, and stacking them then, costs a trainer's loader a fifth of its speed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.store.final_norm import apply_norm
from schemas.boundary import FINAL
from schemas.errors import SchemaError
from schemas.final_norm import FinalNorm, derivable, derived_spec
from schemas.problem import Problem
from schemas.schema import Schema
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


class Stacking:
    """Tensors `names` and token columns `columns` of a schema, to be stacked: the same for every sample.

    `norm` is the target's, where `final_normed` is not stored but made of `final`, in its slot. Raises
    `SchemaError` where tensors are not of one dtype and width, or one is named twice.
    """

    def __init__(
        self, schema: Schema, names: Sequence[str], columns: Sequence[str], norm: FinalNorm | None = None
    ) -> None:
        made = derivable(schema, norm)
        specs = [derived_spec(schema) if name in made else schema.tensor(name) for name in names]
        slots = {name: slot for slot, name in enumerate(names)}
        self.normed = next((slots.pop(name) for name in made if name in slots), None)
        if self.normed is not None:
            slots.setdefault(FINAL, self.normed)
        kinds = {(spec.dtype, spec.width) for spec in specs}
        if len(kinds) != 1 or len(set(names)) != len(names):
            told = ", ".join(f"{spec.name} {spec.dtype}[{spec.width}]" for spec in specs)
            message = f"expected different tensors of one dtype and width, got {told or 'none'}"
            raise SchemaError("nothing that stacks", [Problem(where="names", kind="stack", message=message)])
        dtypes = {column.name: column.dtype for column in schema.token_columns}
        self.norm = norm
        self.slots = slots
        self.dtype, self.width, self.row_bytes = specs[0].dtype, specs[0].width, specs[0].row_bytes
        self.n_slots = len(names)
        self.columns = {name: BITS[dtypes[name]] for name in columns}

    def one(self, make: MakeStates = new_states) -> "OneStack":
        """Begin a sample, whose states `make` makes."""
        return OneStack(self, make)


class Stackings:
    """How tensors of a schema stack, worked out once: a trainer asks for the same with each sample."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], Stacking] = {}

    def of(
        self, names: Sequence[str], columns: Sequence[str], norm: Callable[[], FinalNorm | None]
    ) -> Stacking:
        """Return the stacking of these, `norm` asked for the first time only; raises as `Stacking` does."""
        asked = tuple(names), tuple(columns)
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = Stacking(self._schema, *asked, norm())
        return found


class OneStack:
    """A sample that is stacked."""

    def __init__(self, stacking: Stacking, make: MakeStates) -> None:
        self._of = stacking
        self._make = make
        self._made: Stack | None = None

    def planes(self, n_tokens: int) -> dict[str, NDArray[np.uint8]]:
        """Make the arrays of a sample, and return where their bytes go."""
        of = self._of
        states = self._make(n_tokens, of.n_slots, of.width, of.dtype)
        tokens = {name: np.empty(n_tokens, bits) for name, bits in of.columns.items()}
        self._made = Stack(states, tokens)
        flat = states.view(np.uint8).reshape(n_tokens, of.n_slots, of.row_bytes)
        planes = {name: flat[:, slot] for name, slot in of.slots.items()}
        for name, values in tokens.items():
            planes[name] = values.view(np.uint8).reshape(n_tokens, -1)
        return planes

    def done(self) -> Stack:
        """Return what was made, after its planes were filled."""
        if self._made is None:
            raise ValueError("expected planes that were made, got none")
        of = self._of
        if of.norm is not None and of.normed is not None:
            states = self._made.states
            apply_norm(of.norm, states[:, of.slots[FINAL]], of.dtype, out=states[:, of.normed])
        return self._made
