"""What wrong rows look like instead: a person who reads "looks like `layer16`" knows what to mend."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datagen.checks.rows import token_errors
from schemas.boundary import FINAL, FINAL_NORMED

ALIKE = 0.1
"""The median error up to which rows are said to look like others."""


def likeness(rows: NDArray[np.generic], tensors: Mapping[str, NDArray[np.generic]], name: str) -> str:
    """Return what `rows` `[T, H]`, given as `name`, are among `tensors` of the same tokens, in words."""
    if not rows.astype(bool).any():
        return "they are zeros"
    distances = {other: float(np.median(token_errors(rows, values))) for other, values in tensors.items()}
    nearest = min(distances, key=distances.__getitem__)
    if distances[nearest] <= ALIKE and nearest != name:
        after = nearest == FINAL_NORMED and name == FINAL
        return "they look like `final` after its norm" if after else f"they look like `{nearest}`"
    own = tensors[name]
    if len(rows) > 2:
        for said, given, there in (
            ("before", rows[1:], own[:-1]),
            ("after", rows[:-1], own[1:]),
        ):
            if float(np.median(token_errors(given, there))) <= ALIKE:
                return f"they look like `{name}` of the token {said} each"
    return "they look like no tensor of these tokens"
