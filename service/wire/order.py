"""The epoch order: which sample stands where, as a pure function of sample ids, seed and epoch.

A sample's key is a mix of the first 8 bytes of its id (big-endian; ids are hashes) with two 64-bit words of
sha256 over `strata.order.v1`, the seed and the epoch in decimal, each pair parted by a zero byte: the first
two words of that digest, big-endian, `k0` and `k1`. `key = mix(mix(prefix ^ k0) ^ k1)`, `mix` the finalizer
of splitmix64. Samples stand in the order of their keys; equal keys in the order of their ids.

So the order does not depend on how samples are packed in parts, and leaving some out (a split, a minimum of
tokens, a dropped sample) leaves the order of the others as it was. Test vectors are in
`tests/service/wire/test_order.py`.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

ID_BYTES = 32


def epoch_words(seed: int, epoch: int) -> tuple[int, int]:
    """Return `k0` and `k1` of an epoch."""
    digest = hashlib.sha256(f"strata.order.v1\0{seed}\0{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finalizer of each word (Steele, Lea and Flood 2014), a bijection.

    >>> [hex(word) for word in mix(np.array([0, 1], np.uint64))]
    ['0x0', '0x5692161d100b05e5']
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def order_keys(sample_ids: NDArray[np.uint8], seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return the key of each sample, `[n]`; `sample_ids` are `[n, 32]` bytes."""
    prefixes = np.ascontiguousarray(sample_ids[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
    first, second = (np.uint64(word) for word in epoch_words(seed, epoch))
    return mix(mix(prefixes ^ first) ^ second)


def epoch_order(sample_ids: NDArray[np.uint8], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return `[n]`: for each position of the epoch, the row of `sample_ids` that stands there.

    `sample_ids` are `[n, 32]` bytes, ascending, each once: the samples of a version, or of one of its splits.
    """
    # Stable: equal keys keep the order of their rows, which is that of their ids.
    return np.argsort(order_keys(sample_ids, seed, epoch), kind="stable").astype(np.int64)
