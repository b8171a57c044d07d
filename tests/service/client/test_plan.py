"""The plan follows the order and the packs that both ends of the wire agree on."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.client.errors import StreamError
from service.client.plan import Budget, Plan
from service.client.version import OrderTable
from service.wire.order import epoch_order
from service.wire.packs import pack_starts


def table_of(lengths: list[int], seed: int = 0) -> OrderTable:
    ids = np.random.default_rng(seed).integers(0, 256, (len(lengths), 32), dtype=np.uint8)
    ids = ids[np.lexsort(ids.T[::-1])]
    return OrderTable(ids, np.array(lengths, np.int32), np.array(lengths, np.int32) // 2)


def taken(plan: Plan, epoch: int) -> list[tuple[str, int]]:
    """Return the samples of an epoch in order, each with how many tokens are taken."""
    packs = [plan.pack(epoch, number) for number in range(plan.n_packs(epoch))]
    return [pair for pack in packs for pair in zip(pack.sample_ids, pack.lengths.tolist(), strict=True)]


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@settings(deadline=None, max_examples=100)
@given(lengths, st.integers(0, 2**64), st.integers(0, 5), st.integers(60, 200), st.none() | st.integers(1, 5))
def test_packs_are_those_of_the_wire(
    lengths: list[int], seed: int, epoch: int, tokens: int, samples: int | None
) -> None:
    table = table_of(lengths)
    plan = Plan(table, seed, Budget(tokens, samples))
    order = epoch_order(table.sample_ids, seed, epoch)
    starts = pack_starts(table.n_tokens[order], tokens, samples)
    assert plan.n_packs(epoch) == len(starts) - 1
    ids = [table.sample_ids[row].tobytes().hex() for row in order]
    assert [plan.pack(epoch, n).sample_ids for n in range(plan.n_packs(epoch))] == [
        ids[first:end] for first, end in pairwise(starts.tolist())
    ]


def test_epochs_are_shuffled_each_in_its_own_way() -> None:
    plan = Plan(table_of([10] * 50), 0, Budget(samples=4))
    orders = [[sample for sample, _ in taken(plan, epoch)] for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_long_samples_are_refused_with_how_many_there_are() -> None:
    with pytest.raises(StreamError, match="got 2 longer ones of 4, the longest of 9"):
        Plan(table_of([3, 9, 5, 7]), 0, Budget(tokens=6))


def test_long_samples_are_cut_each_alone_in_its_pack() -> None:
    plan = Plan(table_of([3, 9, 5, 7]), 0, Budget(tokens=6, too_long="cut"))
    assert sorted(n for _, n in taken(plan, 0)) == [3, 5, 6, 6]
    packs = [plan.pack(0, number) for number in range(plan.n_packs(0))]
    assert [pack.lengths.tolist() for pack in packs if pack.is_cut] == [[6], [6]]
    assert plan.n_over == 2


def test_a_sample_as_long_as_the_budget_is_whole() -> None:
    plan = Plan(table_of([6]), 0, Budget(tokens=6, too_long="cut"))
    assert not plan.pack(0, 0).is_cut


def test_long_samples_are_left_out_and_the_others_keep_their_order() -> None:
    table = table_of([3, 9, 5, 7, 2])
    everything = Plan(table, 3, Budget(tokens=100))
    shorter = Plan(table, 3, Budget(tokens=6, too_long="drop"))
    assert taken(shorter, 1) == [pair for pair in taken(everything, 1) if pair[1] <= 6]


def test_without_samples_there_is_no_plan() -> None:
    with pytest.raises(StreamError, match="got 2 of the selection and 2 of them too long"):
        Plan(table_of([9, 9]), 0, Budget(tokens=6, too_long="drop"))


@pytest.mark.parametrize(
    ("budget", "where"),
    [
        (Budget(), ["tokens_per_batch"]),
        (Budget(tokens=0), ["tokens_per_batch"]),
        (Budget(samples=-1, too_long="chop"), ["samples_per_batch", "too_long"]),  # type: ignore[arg-type]
    ],
    ids=["no limit", "nothing", "all at once"],
)
def test_a_wrong_budget_names_all_that_is_wrong(budget: Budget, where: list[str]) -> None:
    assert [problem.where for problem in budget.problems()] == where
