"""Hidden states as somebody's file has them: slots in an order, and no name that could be trusted.

Shapes: T token ids, R rows of a slot, W its width (H, or several H side by side).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Slot:
    """One tensor of a file, `[R, W]`, by where it lies there: `hidden_states[2]`."""

    name: str
    rows: NDArray[np.generic]


@dataclass(frozen=True)
class ForeignSample:
    """One file: its token ids `[T]` (`None` where it has none) and its slots.

    `last` is what the layout's own trainer takes the last slot for; with `claims` a slot's name says which
    tensor it is.
    """

    file: str
    layout: str
    token_ids: NDArray[np.int64] | None
    slots: tuple[Slot, ...]
    last: str | None = None
    claims: bool = False
