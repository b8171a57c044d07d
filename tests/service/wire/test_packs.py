"""Packs: within their budget, and each given exactly once an epoch whatever the world does."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.packs import n_steps, pack_starts, turn

LENGTHS = st.lists(st.integers(1, 50), max_size=120)


@given(
    lengths=LENGTHS, max_tokens=st.none() | st.integers(50, 200), max_samples=st.none() | st.integers(1, 9)
)
def test_packs_hold_every_sample_once_and_are_full(
    lengths: list[int], max_tokens: int | None, max_samples: int | None
) -> None:
    if max_tokens is None and max_samples is None:
        with pytest.raises(ValueError, match="expected a limit"):
            pack_starts(np.array(lengths, np.int32), None, None)
        return
    starts = pack_starts(np.array(lengths, np.int32), max_tokens, max_samples)
    assert starts[0] == 0
    assert starts[-1] == len(lengths)
    assert (np.diff(starts) > 0).all()
    for first, end in pairwise(starts):
        assert max_tokens is None or sum(lengths[first:end]) <= max_tokens
        assert max_samples is None or end - first <= max_samples
        if end < len(lengths):
            over = max_tokens is not None and sum(lengths[first : end + 1]) > max_tokens
            assert over or end - first == max_samples


def test_a_sample_over_the_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 6 tokens, got one of 7"):
        pack_starts(np.array([1, 7]), 6, None)


@given(
    n_packs=st.integers(0, 60),
    worlds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=6),
    tail=st.sampled_from(["pad", "drop"]),
)
def test_every_pack_is_given_once_while_the_world_grows_and_shrinks(
    n_packs: int, worlds: list[tuple[int, int]], tail: str
) -> None:
    position, given_out, last_world = 0, [], worlds[-1][0]
    for number, (world, steps) in enumerate(worlds):
        left = n_steps(n_packs, position, world, tail)  # type: ignore[arg-type]
        for _ in range(left if number == len(worlds) - 1 else min(steps, left)):
            turns = [turn(n_packs, position, rank, world, tail) for rank in range(world)]  # type: ignore[arg-type]
            assert None not in turns
            given_out += [one.pack for one in turns if one and not one.is_padding]
            position += world
        last_world = world
    assert len(set(given_out)) == len(given_out)
    missing = set(range(n_packs)) - set(given_out)
    if tail == "pad":
        assert not missing
    else:
        assert len(missing) < last_world
        assert missing == set(range(n_packs - len(missing), n_packs))
    assert turn(n_packs, position, 0, last_world, tail) is None  # type: ignore[arg-type]
