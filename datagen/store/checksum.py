"""crc32c (Castagnoli), a block of 64 rows at a time, and the finite check in the same pass over the bytes.

Blocks are counted from a sample's start, so a token window can be checked without what stands before it.
The checksum of the whole sample follows from its blocks' by `combine`, without a second pass.
"""

from typing import NamedTuple

import numpy as np
from awscrt import checksums
from numpy.typing import NDArray

from datagen.store.dtypes import EXPONENT_MASKS
from schemas.records import BLOCK_ROWS


class Scan(NamedTuple):
    """What one pass over the rows of a sample's tensor found.

    `blocks` are the crc32c of each 64-row block, `[ceil(T / 64)]`; `whole` that of all rows. `not_finite` are
    the tokens whose row holds NaN or Inf.
    """

    blocks: NDArray[np.uint32]
    whole: int
    not_finite: NDArray[np.int64]


def crc32c(data: NDArray[np.uint8] | bytes, before: int = 0) -> int:
    """Return the crc32c of bytes, or of what `before` is the checksum of followed by them.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return int(checksums.crc32c(data, before))


def combine(before: int, after: int, after_bytes: int) -> int:
    """Return the crc32c of two runs of bytes, one after the other, from the checksum of each.

    >>> combine(crc32c(b"12345"), crc32c(b"6789"), 4) == crc32c(b"123456789")
    True
    """
    return int(checksums.combine_crc32c(before, after, after_bytes))


def bytes_of(rows: NDArray[np.generic]) -> NDArray[np.uint8]:
    """View a C-contiguous array as its bytes, `[n]` uint8, without a copy."""
    return rows.reshape(-1).view(np.uint8)


def block_sums(data: NDArray[np.uint8], block_bytes: int) -> list[int]:
    """Return the crc32c of each run of `block_bytes` bytes, the last one as long as what is left.

    >>> block_sums(np.zeros(5, np.uint8), 4) == [crc32c(bytes(4)), crc32c(bytes(1))]
    True
    """
    return [checksums.crc32c(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]


def block_checksums(rows: NDArray[np.generic]) -> NDArray[np.uint32]:
    """Return the crc32c of each 64-row block of C-contiguous `[T, H]` rows, `[ceil(T / 64)]`."""
    return np.array(block_sums(bytes_of(rows), BLOCK_ROWS * rows.shape[1] * rows.itemsize), np.uint32)


def scan(rows: NDArray[np.generic], dtype: str) -> Scan:
    """Check and checksum C-contiguous `[T, H]` rows of the schema's `dtype`.

    A block is masked and checksummed while it lies in the cache: one pass over memory for both.
    """
    mask = EXPONENT_MASKS[dtype]
    words = rows.view(mask.dtype)
    scratch = np.empty((min(BLOCK_ROWS, len(words)), words.shape[1]), mask.dtype)
    blocks = np.empty(-(-len(words) // BLOCK_ROWS), np.uint32)
    suspect: list[int] = []
    whole = 0
    for number in range(len(blocks)):
        block = words[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS]
        masked = np.bitwise_and(block, mask, out=scratch[: len(block)])
        if masked.max() == mask:
            suspect.append(number)
        value = crc32c(bytes_of(block))
        blocks[number] = value
        whole = combine(whole, value, block.nbytes)
    return Scan(blocks, whole, _not_finite(words, mask, suspect))


def _not_finite(words: NDArray[np.generic], mask: np.unsignedinteger, blocks: list[int]) -> NDArray[np.int64]:
    """Return the tokens with NaN or Inf, looked for only in the blocks known to hold some."""
    found = [np.empty(0, np.int64)]
    for number in blocks:
        start = number * BLOCK_ROWS
        block = words[start : start + BLOCK_ROWS]
        found.append(start + np.flatnonzero((np.bitwise_and(block, mask) == mask).any(axis=1)))
    return np.concatenate(found)
