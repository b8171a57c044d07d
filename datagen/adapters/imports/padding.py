"""Padding at the end of a sample as its attention mask tells it: ones over tokens, then zeros to the end."""

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.errors import ForeignFileError
from schemas.problem import Problem


def real_tokens(attention_mask: NDArray[np.generic], where: str) -> int:
    """Return how many tokens of a sample are no padding.

    Raises `ForeignFileError` for a mask of other values, of no token, or with padding before a token.
    """
    mask = attention_mask.reshape(-1)
    n_real = int(np.count_nonzero(mask))
    if n_real and bool(np.all(mask[:n_real] == 1)):
        return n_real
    if not n_real:
        message = "expected at least one token, got an attention mask of zeros"
    else:
        first = int(np.argmax(mask[:n_real] != 1))
        message = f"expected ones, then zeros to the end, got {mask[first]} at token {first} of {len(mask)}"
    problem = Problem(where=f"{where}: attention_mask", kind="padding", message=message)
    raise ForeignFileError("the sample cannot be told from its padding", [problem])
