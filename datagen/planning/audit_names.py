"""Which tensors an audit set has: every boundary, or as many as the engine can give beside the run's own.

An engine that cannot give all of them is proven by those that it gives; the others are told by name, here and
by whoever reads the set.
"""

from typing import NamedTuple

from datagen.engines.opening import Giving
from schemas.boundary import all_names
from schemas.schema import Schema

SHOWN = 6
"""Names in a sentence."""
NO_AUDIT = (
    "none (audit.samples = 0): no tensor is held against a witness, no part against norms, no sample against "
    "rows of its beginning or what its ids foresee; what the engine does not prove itself is taken on trust"
)


class AuditNames(NamedTuple):
    """The tensors of an audit set, those of the target that it lacks, and why."""

    names: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    why: str = ""

    @property
    def said(self) -> str:
        """What it has, in words."""
        if not self.lacking:
            return "every boundary"
        return f"{len(self.names)} tensors; without {shortened(self.lacking)} ({self.why})"


def audit_names(giving: Giving, schema: Schema) -> AuditNames:
    """Return what an audit set of a run of `schema` has, by what its engine can give."""
    target, dtype = schema.target, schema.tensors[0].dtype
    every = all_names(target.n_layers)
    problems = giving(schema, Schema.declare(target, every, dtype))
    if not problems:
        return AuditNames(every)
    own = set(schema.names)
    given = tuple(
        name
        for name in every
        if name in own or not giving(schema, Schema.declare(target, sorted({*own, name}), dtype))
    )
    if giving(schema, Schema.declare(target, given, dtype)):
        given = tuple(name for name in every if name in own)
    why = "; ".join(dict.fromkeys(problem.message for problem in problems))
    return AuditNames(given, tuple(name for name in every if name not in given), why)


def lacking_of(schema: Schema) -> tuple[str, ...]:
    """Return which tensors of the target an audit set that is there lacks."""
    return tuple(name for name in all_names(schema.target.n_layers) if name not in schema.names)


def shortened(names: tuple[str, ...]) -> str:
    """Return names with commas between, the first of many.

    >>> shortened(("layer1", "layer2"))
    'layer1, layer2'
    """
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
