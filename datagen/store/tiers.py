"""Which index files a commit merges: by tiers, as a log-structured merge tree does.

A tier holds files of like size (within a factor of `FAN_IN`). When the files of a tier are `FAN_IN`, they
become one of the next: a row is rewritten once a tier, so a commit costs what is new, amortised, and a
version of n rows names at most about `FAN_IN * log(n, FAN_IN)` files.
"""

from collections import defaultdict
from collections.abc import Sequence

FAN_IN = 8


def tier_of(n_rows: int) -> int:
    """Return the tier of a file.

    >>> [tier_of(n) for n in (1, 7, 8, 63, 64, 100_000)]
    [0, 0, 1, 1, 2, 5]
    """
    tier = 0
    while n_rows >= FAN_IN:
        n_rows //= FAN_IN
        tier += 1
    return tier


def merge_groups(n_rows: Sequence[int]) -> list[list[int]]:
    """Return the files (their numbers in `n_rows`) in groups, each to become one file.

    >>> merge_groups([100, 1, 1])
    [[0], [1], [2]]
    >>> merge_groups([100] + [1] * 8)
    [[0], [1, 2, 3, 4, 5, 6, 7, 8]]
    """
    groups = [[number] for number in range(len(n_rows))]
    while True:
        tiers = defaultdict(list)
        for group in groups:
            tiers[tier_of(sum(n_rows[number] for number in group))].append(group)
        full = [tier for tier in sorted(tiers) if len(tiers[tier]) >= FAN_IN]
        if not full:
            return groups
        merging = tiers[full[0]]
        merged = sorted(number for group in merging for number in group)
        groups = [group for group in groups if group not in merging] + [merged]
