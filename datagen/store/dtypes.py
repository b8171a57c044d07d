"""The schema's dtype names as numpy dtypes, and what of their bits says *not finite*."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np

NUMPY_DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
}

EXPONENT_MASKS: Mapping[str, np.unsignedinteger] = {
    "bfloat16": np.uint16(0x7F80),
    "float16": np.uint16(0x7C00),
    "float32": np.uint32(0x7F800000),
}
"""A float is NaN or Inf exactly when all its exponent bits are set."""


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Return the name that the schema has for `dtype`; a foreign byte order shows in it.

    >>> dtype_name(np.dtype(np.float32)), dtype_name(np.dtype(">f4"))
    ('float32', '>f4')
    """
    return dtype.name if dtype.isnative else dtype.str
