"""The Zarr data type `bfloat16`, made known to zarr-python, which has none of its own.

The name and the encoding are the registered Zarr extension's: a plain string, two bytes, fill value a float.
Whoever opens arrays of a part through zarr-python calls `register` first, in every process; the store's own
readers do not need zarr-python. Whoever *writes* bfloat16 through zarr-python must set
`write_empty_chunks=True`: zarr takes a chunk of -0.0 for empty, and it would come back as +0.0.
"""

from typing import ClassVar, Self

import ml_dtypes
import numpy as np
from zarr.dtype import DataTypeValidationError, Float16, data_type_registry

NAME = "bfloat16"
NATIVE: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)


class BFloat16(Float16):  # type: ignore[misc]
    """bfloat16 as zarr-python sees it.

    It takes after `Float16` because that is the public class which carries zarr's item size and byte order:
    the mix-ins themselves have only a private path.
    """

    dtype_cls = type(NATIVE)
    _zarr_v3_name = NAME
    _zarr_v2_names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_native_dtype(cls, dtype: np.dtype[np.generic]) -> Self:
        """Return the type of `ml_dtypes.bfloat16`; raises zarr's `DataTypeValidationError` for another."""
        if dtype == NATIVE:
            return cls()
        raise DataTypeValidationError(f"expected {NATIVE}, got {dtype}")

    def to_native_dtype(self) -> np.dtype[np.generic]:
        """Return `ml_dtypes.bfloat16`; numpy knows it in the machine's byte order only."""
        if self.endianness != "little":
            raise DataTypeValidationError(f"expected little-endian bfloat16, got {self.endianness}")
        return NATIVE


def register() -> None:
    """Make `bfloat16` known to zarr-python in this process; a type that zarr has by then is left alone."""
    if NAME not in data_type_registry.contents:
        data_type_registry.register(NAME, BFloat16)
