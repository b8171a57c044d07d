"""Units and batches: every prompt once, within the budgets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datagen.config import PartSettings
from datagen.planning.units import Unit, batches, make_units
from tests.datagen.prompt_builders import random_prompts

LENGTHS = st.lists(st.integers(1, 300), max_size=60)


@given(LENGTHS, st.integers(1, 5), st.integers(1 << 16, 1 << 20), st.integers(1, 20))
def test_every_prompt_stands_in_one_unit(
    lengths: list[int], n_workers: int, max_bytes: int, max_samples: int
) -> None:
    prompts = random_prompts(lengths)
    parts = PartSettings(max_bytes=max_bytes, max_samples=max_samples)
    units = make_units(prompts, 1000, parts, n_workers)
    counted = Counter(id(prompt) for unit in units for prompt in unit.prompts)
    assert counted == Counter(id(prompt) for prompt in prompts)
    for unit in units:
        assert len(unit.prompts) <= max_samples
        assert len(unit.prompts) == 1 or unit.n_tokens * 1000 <= max_bytes


@given(LENGTHS)
def test_units_do_not_depend_on_the_order_of_the_prompts(lengths: list[int]) -> None:
    prompts = random_prompts(lengths)
    parts = PartSettings()
    there = make_units(prompts, 1000, parts, 2)
    back = make_units(prompts[::-1], 1000, parts, 2)
    assert [[p.sample_id for p in u.prompts] for u in there] == [
        [p.sample_id for p in u.prompts] for u in back
    ]


def test_a_large_run_gives_every_worker_several_units_of_like_size() -> None:
    units = make_units(random_prompts([200] * 1000), 1000, PartSettings(), 4)
    assert len(units) >= 16
    sizes = [unit.n_tokens for unit in units]
    assert max(sizes) - min(sizes) <= max(sizes) // 2


@given(LENGTHS, st.integers(1, 600))
def test_batches_hold_each_prompt_once_within_the_budget(lengths: list[int], budget: int) -> None:
    prompts = random_prompts(lengths)
    made = list(batches(prompts, budget))
    assert Counter(id(p) for batch in made for p in batch) == Counter(id(p) for p in prompts)
    for batch in made:
        longest = max(len(prompt.input_ids) for prompt in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget


def test_halves_are_the_whole_and_one_sample_has_none() -> None:
    unit = Unit("7", tuple(random_prompts([3, 4, 5])), attempts=2)
    left, right = unit.halves()
    assert left.prompts + right.prompts == unit.prompts
    assert (left.number, right.number) == ("7a", "7b")
    assert left.attempts == right.attempts == 0
    with pytest.raises(ValueError, match="cannot be halved"):
        Unit("7", unit.prompts[:1]).halves()
