"""How large a shard of an export is: small enough that every core has one, large enough to be few."""

LEAST_BYTES = 64 * 2**20
SHARES = 64
"""Shards of an export that is large enough; as many can be written at once, and gone on with."""


def shard_bytes(total_bytes: int, most_bytes: int) -> int:
    """Return about how many bytes a shard of so many in all is to have.

    >>> shard_bytes(10**6, 2**30) == LEAST_BYTES, shard_bytes(2**36, 2**31), shard_bytes(2**42, 2**31)
    (True, 1073741824, 2147483648)
    """
    return min(most_bytes, max(LEAST_BYTES, -(-total_bytes // SHARES)))
