"""`final_normed` made by the client where a dataset stores `final` and keeps its target's norm.

What is asked for under that name is fetched as `final`, and normed where it lies: the same bytes as an export
writes, since both call the one arithmetic. Nothing of the store is loaded for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from datagen.store.final_norm import apply_norm
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.final_norm import FinalNorm
from schemas.schema import Schema
from service.client.rows import Rows

FindNorm = Callable[[], FinalNorm | None]
"""Returns the norm that a dataset keeps; asked only where something is made by it."""


def no_norm() -> None:
    """Find none: for a source that keeps none."""


def can_be_made(schema: Schema) -> bool:
    """Say whether a norm would make `final_normed`: `final` is stored, and what it is made into is not."""
    return FINAL in schema.names and FINAL_NORMED not in schema.names


def fetched(names: Sequence[str], norm: FinalNorm | None) -> tuple[str, ...]:
    """Return the names to fetch for those that are asked for.

    >>> fetched(("layer2", "final_normed"), None)
    ('layer2', 'final_normed')
    """
    if norm is None:
        return tuple(names)
    return tuple(dict.fromkeys(FINAL if name == FINAL_NORMED else name for name in names))


def with_normed(rows: Rows, names: Sequence[str], norm: FinalNorm | None, schema: Schema) -> Rows:
    """Return fetched rows under the names that were asked for, `final_normed` made of `final`.

    It is made in place; where `final` is asked for too, in memory of its own.
    """
    if norm is None or FINAL_NORMED not in names:
        return rows
    final = rows.tensors[FINAL]
    made = final if FINAL not in names else np.empty_like(final)
    apply_norm(norm, final, schema.tensor(FINAL).dtype, out=made)
    tensors = {**rows.tensors, FINAL_NORMED: made}
    dtypes = {**rows.dtypes, FINAL_NORMED: rows.dtypes[FINAL]}
    return replace(
        rows,
        tensors={name: tensors[name] for name in names if name in tensors},
        dtypes={name: dtypes[name] for name in names},
    )
