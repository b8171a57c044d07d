"""Turns give each pack once an epoch, whatever ranks, workers and stops there are on the way."""

from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.client.errors import StreamError
from service.client.turns import Position, Share, Step, Worker, steps
from service.wire.packs import Tail


class Stage(NamedTuple):
    """A stretch of training: with so many ranks and workers each, stopped after so many steps."""

    world_size: int
    workers: int
    n_steps: int


def loaded(n_packs: int, at: Position, share: Share, workers: int, epochs: int) -> list[Step]:
    """Return a rank's steps as a DataLoader hands them out: its workers by turns, until they end."""
    left = [list(steps(lambda _: n_packs, at, share, Worker(w, workers), epochs)) for w in range(workers)]
    found = []
    while any(left):
        for worker in left:
            if worker:
                found.append(worker.pop(0))
    return found


def trained(n_packs: int, stages: list[Stage], tail: Tail, epochs: int) -> list[list[Step]]:
    """Return what each step gave to all ranks, through stages and at last one rank to the end."""
    at = Position()
    found: list[list[Step]] = []
    for world_size, workers, n_steps in [*stages, Stage(1, 1, 10_000)]:
        ranks = [
            loaded(n_packs, at, Share(rank, world_size, tail), workers, epochs) for rank in range(world_size)
        ]
        stage = [list(step) for step in zip(*ranks, strict=True)][:n_steps]
        found += stage
        if stage:
            assert len({step.after for step in stage[-1]}) == 1, "ranks disagree on where they are"
            at = stage[-1][0].after
    return found


stages = st.lists(
    st.builds(Stage, st.integers(1, 5), st.integers(1, 4), st.integers(0, 12)), min_size=0, max_size=4
)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 23), stages)
def test_padded_each_pack_is_given_once_an_epoch_and_padding_is_flagged(
    n_packs: int, stages: list[Stage]
) -> None:
    epochs = 2
    given = [step for ranks in trained(n_packs, stages, "pad", epochs) for step in ranks]
    for epoch in range(epochs):
        packs = [step.pack for step in given if step.epoch == epoch and not step.is_padding]
        assert packs == list(range(n_packs))
        padding = [step.pack for step in given if step.epoch == epoch and step.is_padding]
        assert len(padding) < max([1, *(stage.world_size for stage in stages)])


@settings(deadline=None, max_examples=300)
@given(st.integers(5, 23), stages)
def test_dropped_no_pack_is_given_twice_and_only_the_last_are_left_out(
    n_packs: int, stages: list[Stage]
) -> None:
    given = [step for ranks in trained(n_packs, stages, "drop", 2) for step in ranks]
    assert not any(step.is_padding for step in given)
    for epoch in range(2):
        packs = [step.pack for step in given if step.epoch == epoch]
        assert packs == list(range(len(packs)))
        assert n_packs - len(packs) < max([1, *(stage.world_size for stage in stages)])


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 7), st.sampled_from(["pad", "drop"]))
def test_workers_by_turns_are_one_worker(n_packs: int, world_size: int, workers: int, tail: Tail) -> None:
    if tail == "drop" and n_packs < world_size:
        return
    for rank in range(world_size):
        share = Share(rank, world_size, tail)
        assert loaded(n_packs, Position(), share, workers, 3) == loaded(n_packs, Position(), share, 1, 3)


def test_without_an_end_epochs_follow_one_another() -> None:
    given = list(islice(steps(lambda epoch: 2 + epoch, Position(), Share()), 9))
    assert [(step.epoch, step.pack) for step in given] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (2, 3),
    ]  # fmt: skip


def test_a_position_at_an_epochs_end_is_the_next_epochs_beginning() -> None:
    (first, *_) = steps(lambda _: 4, Position(0, 4), Share(0, 3, "pad"), epochs=2)
    assert (first.epoch, first.pack) == (1, 0)


def test_what_a_large_world_dropped_a_smaller_one_is_given() -> None:
    large = list(steps(lambda _: 5, Position(), Share(0, 3, "drop"), epochs=1))
    assert large[-1].after == Position(0, 3)
    smaller = list(steps(lambda _: 5, large[-1].after, Share(0, 2, "drop"), epochs=1))
    assert [step.pack for step in smaller] == [3]


def test_an_epoch_without_a_step_is_an_error_not_a_loop() -> None:
    with pytest.raises(StreamError, match="expected at least 3 packs in epoch 0, one a rank, got 2"):
        next(steps(lambda _: 2, Position(), Share(0, 3, "drop")))


@pytest.mark.parametrize(
    ("share", "where"),
    [
        (Share(0, 0), ["world_size"]),
        (Share(2, 2, "pad"), ["rank"]),
        (Share(-1, 1), ["rank"]),
        (Share(0, 2), ["tail"]),
        (Share(3, 2, "wrap"), ["rank", "tail"]),  # type: ignore[arg-type]
    ],
    ids=["no rank", "beyond", "below", "tail not said", "all at once"],
)
def test_a_wrong_share_names_all_that_is_wrong(share: Share, where: list[str]) -> None:
    assert [problem.where for problem in share.problems()] == where


def test_one_rank_needs_no_tail() -> None:
    assert not Share().problems()
