"""The arithmetic of a target's final norm in numpy alone: the same bytes wherever `final_normed` is made.

An export, the service's client and a trainer's dataset all call this. Sums are numpy's pairwise ones, a row
at a time, and every other step is one correctly rounded operation: a row's result hangs neither on the rows
beside it nor on the machine. bfloat16 is worked with by its bits, since numpy has no such type.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.final_norm import FinalNorm
from schemas.schema import DType

_BLOCK_BYTES = 1 << 18
"""Of float32 that a block of rows is: a few such blocks stay in a core's own cache."""
_FLOATS: Mapping[str, np.dtype[Any]] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}


def apply_norm(
    norm: FinalNorm, rows: NDArray[np.generic], dtype: DType, *, out: NDArray[np.generic] | None = None
) -> NDArray[np.generic]:
    """Return `norm(rows)` `[T, H]` in the numpy dtype of `rows`, rounded as the target's own class rounds.

    `rows` are values of `dtype`; those of bfloat16 may be given as their bits (uint16) or as
    `ml_dtypes.bfloat16`. `out`, which may be `rows` themselves, is filled and returned, not a new array.
    Raises `ValueError` for rows that are not `[T, hidden_size]` of that dtype.
    """
    made = np.empty(rows.shape, rows.dtype) if out is None else out
    bits: np.dtype[Any] = np.dtype("<u2") if dtype == "bfloat16" else _FLOATS[dtype]
    if rows.ndim != 2 or rows.shape[1] != norm.hidden_size or rows.dtype.itemsize != bits.itemsize:
        raise ValueError(
            f"expected rows [T, {norm.hidden_size}] of {dtype}, got {list(rows.shape)} of {rows.dtype}"
        )
    if made.shape != rows.shape or made.dtype.itemsize != bits.itemsize:
        raise ValueError(
            f"expected out as {list(rows.shape)} of {dtype}, got {list(made.shape)} of {made.dtype}"
        )
    given, filled = rows.view(bits), made.view(bits)
    scale = _scale(norm.weight_bytes, norm.bias_bytes, norm.dtype, dtype, norm.offset)
    step = max(1, _BLOCK_BYTES // (4 * norm.hidden_size))
    work = _Work(min(step, len(given)), norm.hidden_size)
    # A product that overflows is an infinity there as here.
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(given), step):
            block = given[first : first + step]
            work.norm(norm, scale, block, filled[first : first + step], dtype)
    return made


class _Scale(NamedTuple):
    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None


@lru_cache(8)
def _scale(weight: bytes, bias: bytes | None, stored: DType, dtype: DType, offset: float) -> _Scale:
    """Return weight and bias as float32, after a cast to the rows' dtype; the offset is added in float32."""
    values = _cast(_wide(weight, stored), dtype)
    if offset:
        values = values + np.float32(offset)
    return _Scale(values, None if bias is None else _cast(_wide(bias, stored), dtype))


def _wide(data: bytes, dtype: DType) -> NDArray[np.float32]:
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, _FLOATS[dtype]).astype(np.float32)


def _cast(values: NDArray[np.float32], dtype: DType) -> NDArray[np.float32]:
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(_FLOATS[dtype]).astype(np.float32)


class _Work:
    """The float32 blocks that one call works in."""

    def __init__(self, n_rows: int, width: int) -> None:
        self._values = np.empty((n_rows, width), np.float32)
        self._aside = np.empty((n_rows, width), np.float32)

    def norm(
        self,
        norm: FinalNorm,
        scale: _Scale,
        block: NDArray[np.generic],
        made: NDArray[np.generic],
        dtype: DType,
    ) -> None:
        """Fill `made` with the norm of `block`."""
        values, aside = self._values[: len(block)], self._aside[: len(block)]
        width = np.float32(norm.hidden_size)
        self._widen(block, values, dtype)
        if norm.kind == "layer_norm":
            values -= (np.add.reduce(values, axis=1) / width)[:, None]
        np.multiply(values, values, out=aside)
        variance = np.add.reduce(aside, axis=1) / width
        values *= (np.float32(1) / np.sqrt(variance + np.float32(norm.epsilon)))[:, None]
        if norm.casts == "before_scale":
            self._round(values, aside, dtype)
        values *= scale.weight
        if scale.bias is not None:
            values += scale.bias
        self._narrow(values, aside, made, dtype)

    @staticmethod
    def _widen(block: NDArray[np.generic], values: NDArray[np.float32], dtype: DType) -> None:
        if dtype != "bfloat16":
            values[...] = block
            return
        bits = values.view(np.uint32)
        bits[...] = block
        bits <<= 16

    @staticmethod
    def _round(values: NDArray[np.float32], aside: NDArray[np.float32], dtype: DType) -> None:
        """Round to the values of `dtype`, ties to even, and stay float32."""
        if dtype == "float16":
            values[...] = values.astype(np.float16)
        if dtype != "bfloat16":
            return
        bits = _rounded(values, aside)
        bits &= np.uint32(0xFFFF0000)

    @staticmethod
    def _narrow(
        values: NDArray[np.float32], aside: NDArray[np.float32], made: NDArray[np.generic], dtype: DType
    ) -> None:
        if dtype != "bfloat16":
            made[...] = values
            return
        bits = _rounded(values, aside)
        bits >>= 16
        made[...] = bits


def _rounded(values: NDArray[np.float32], aside: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Add half a unit of bfloat16's last place to the bits, a little less before an even one, in place.

    No NaN is carried out of its exponent: of bfloat16 rows, a NaN has an empty lower half.
    """
    bits, odd = values.view(np.uint32), aside.view(np.uint32)
    np.right_shift(bits, 16, out=odd)
    odd &= np.uint32(1)
    odd += np.uint32(0x7FFF)
    bits += odd
    return bits
