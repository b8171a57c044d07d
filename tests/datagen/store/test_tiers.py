"""Tiers: few files, and each row rewritten a few times only."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store.tiers import FAN_IN, merge_groups, tier_of


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=200))
def test_files_stay_few_and_rows_are_rewritten_seldom(commits: list[int]) -> None:
    files: list[int] = []
    rewritten = 0
    for n_rows in commits:
        sizes = [*files, n_rows]
        groups = merge_groups(sizes)
        assert sorted(number for group in groups for number in group) == list(range(len(sizes)))
        rewritten += sum(sizes[number] for group in groups if len(group) > 1 for number in group)
        files = [sum(sizes[number] for number in group) for group in groups]
    total = sum(commits)
    assert sum(files) == total
    tiers = 1 + tier_of(total)
    assert len(files) <= tiers * (FAN_IN - 1)
    assert rewritten <= total * tiers
    assert tiers <= 1 + math.log(total, FAN_IN) + 1e-9
