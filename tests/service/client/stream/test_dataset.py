"""The stream hands out each sample once an epoch, in the wire's order, and goes on from any batch's state."""

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from service.client.errors import RefusedError, StateError, StreamError
from service.client.plan import Budget, Plan
from service.client.stream import Batch, Stream, open_stream
from tests.builders import tiny_schema
from tests.service.client.memory_source import source_of
from tests.service.client.stream.asking import FC, WIRING, stream_of
from tests.service.client.test_ahead import gone, ours

SOURCE = source_of([5, 3, 8, 2, 9, 1, 7, 16, 4, 4, 11, 6, 2, 13, 10])
many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def loader(stream: Stream, workers: int, **given: Any) -> "DataLoader[Any]":
    return DataLoader(stream, batch_size=None, num_workers=workers, **given)


@contextmanager
def ended(batches: Any) -> Iterator[None]:
    """End a loader's workers now: when it is collected after an error, torch waits 5 seconds for each."""
    yield
    batches._shutdown_workers()


def same(first: Batch, second: Batch) -> bool:
    return (
        first.sample_ids == second.sample_ids
        and first.state == second.state
        and first.is_padding == second.is_padding
        and torch.equal(first.input_ids, second.input_ids)
        and all(
            torch.equal(tensor.view(torch.int16), second.tensors[name].view(torch.int16))
            for name, tensor in first.tensors.items()
        )
    )


def test_the_order_is_the_wires() -> None:
    plan = Plan(SOURCE.order_table(), 0, Budget(tokens=16))
    expected = [plan.pack(epoch, n).sample_ids for epoch in range(2) for n in range(plan.n_packs(epoch))]
    got = list(stream_of(SOURCE, epochs=2))
    assert [list(batch.sample_ids) for batch in got] == expected
    assert [(batch.epoch, batch.position) for batch in got] == [
        (epoch, n) for epoch in range(2) for n in range(plan.n_packs(epoch))
    ]


@many_workers
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_loaders_workers_change_neither_batches_nor_their_order(workers: int) -> None:
    expected = list(stream_of(SOURCE, epochs=2))
    got = list(loader(stream_of(SOURCE, epochs=2), workers))
    assert len(got) == len(expected)
    assert all(same(first, second) for first, second in zip(expected, got, strict=True))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=25),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(0, 2)), max_size=3),
)
def test_through_stops_and_other_worlds_each_sample_is_trained_once_an_epoch(
    lengths: list[int], seed: int, stages: list[tuple[int, int, int]]
) -> None:
    source = source_of(lengths)
    state: dict[str, Any] | None = None
    trained: dict[int, list[str]] = {0: [], 1: []}
    for world_size, n_steps, prefetch in [*stages, (1, 1000, 0)]:
        ranks = [
            stream_of(
                source, seed=seed, epochs=2, rank=rank, world_size=world_size, tail="pad", prefetch=prefetch
            )
            for rank in range(world_size)
        ]
        for stream in ranks:
            if state is not None:
                stream.load_state_dict(state)
        for step in islice(zip(*ranks, strict=True), n_steps):
            for batch in step:
                if not batch.is_padding:
                    trained[batch.epoch] += batch.sample_ids
            state = step[0].state
        assert len({str(stream.state_dict()) for stream in ranks}) == 1 or not n_steps
    assert all(sorted(samples) == sorted(source.samples) for samples in trained.values())


def test_a_state_counts_what_was_handed_out_not_what_was_fetched_ahead() -> None:
    stream = stream_of(SOURCE, prefetch=3)
    whole = list(stream_of(SOURCE))
    batches = iter(stream)
    first = [next(batches), next(batches)]
    assert stream.state_dict() == first[1].state
    assert stream.state_dict()["position"] == 2
    other = stream_of(SOURCE, prefetch=0)
    other.load_state_dict(stream.state_dict())
    assert [batch.sample_ids for batch in other] == [batch.sample_ids for batch in whole[2:]]


def test_a_loop_that_is_broken_off_goes_on_where_it_stood() -> None:
    stream = stream_of(SOURCE)
    seen = [batch.sample_ids for batch in islice(stream, 3)]
    seen += [batch.sample_ids for batch in stream]
    assert seen == [batch.sample_ids for batch in stream_of(SOURCE)]


@many_workers
@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (3, 1), (1, 3)])
def test_a_loader_goes_on_from_a_batchs_state_with_other_workers(before: int, after: int) -> None:
    whole = list(stream_of(SOURCE, epochs=2))
    batches = iter(loader(stream_of(SOURCE, epochs=2), before))
    first = [next(batches) for _ in range(4)]
    del batches
    stream = stream_of(SOURCE, epochs=2)
    stream.load_state_dict(first[-1].state)
    rest = list(loader(stream, after))
    assert all(same(one, other) for one, other in zip(whole, [*first, *rest], strict=True))


def as_worker(monkeypatch: pytest.MonkeyPatch, number: int, of: int) -> None:
    info = SimpleNamespace(id=number, num_workers=of)
    monkeypatch.setattr("service.client.stream.dataset.get_worker_info", lambda: info)


def test_each_worker_goes_on_from_its_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `StatefulDataLoader` resumes: in the middle of a round of turns."""
    whole = [batch.sample_ids for batch in stream_of(SOURCE, epochs=2)]
    for number, n_given in enumerate((2, 1, 0)):
        as_worker(monkeypatch, number, 3)
        stream = stream_of(SOURCE, epochs=2)
        first = [batch.sample_ids for batch in islice(stream, n_given)]
        state = stream.state_dict()
        other = stream_of(SOURCE, epochs=2)
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert first + [batch.sample_ids for batch in other] == whole[number::3]
        as_worker(monkeypatch, number, 4)
        with pytest.raises(StateError, match=r"state\.worker: expected .*, 3"):
            stream_of(SOURCE, epochs=2).load_state_dict(state)
        monkeypatch.undo()
        with pytest.raises(StateError, match="got no worker"):
            stream_of(SOURCE, epochs=2).load_state_dict(state)


def test_a_worker_of_another_rank_is_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    as_worker(monkeypatch, 0, 2)
    state = stream_of(SOURCE, world_size=2, tail="pad").state_dict()
    with pytest.raises(StateError, match=r"state\.rank"):
        stream_of(SOURCE, world_size=2, rank=1, tail="pad").load_state_dict(state)


@many_workers
def test_a_loop_that_is_broken_off_goes_on_in_workers() -> None:
    stream = stream_of(SOURCE)
    seen = [batch.sample_ids for batch in islice(stream, 2)]
    seen += [batch.sample_ids for batch in loader(stream, 3)]
    assert seen == [batch.sample_ids for batch in stream_of(SOURCE)]


def test_a_state_of_another_stream_is_refused_with_every_difference() -> None:
    state = stream_of(SOURCE).state_dict()
    with pytest.raises(StateError) as refused:
        stream_of(SOURCE, seed=1, tokens_per_batch=20, min_tokens=2).load_state_dict(state)
    assert {problem.where for problem in refused.value.problems} == {
        "state.seed", "state.tokens_per_batch", "state.min_tokens", "state.samples",
    }  # fmt: skip


def test_what_may_change_between_runs_does() -> None:
    stream = stream_of(SOURCE, world_size=3, rank=1, tail="drop", prefetch=0, layout="padded")
    stream.load_state_dict(stream_of(SOURCE).state_dict())


def test_an_epoch_can_be_gone_to() -> None:
    stream = stream_of(SOURCE, epochs=3)
    stream.set_epoch(2)
    assert {batch.epoch for batch in stream} == {2}
    with pytest.raises(StreamError, match="expected a whole number from 0 on, got -1"):
        stream.set_epoch(-1)


def test_without_an_end_it_goes_on() -> None:
    stream = stream_of(SOURCE, epochs=None)
    assert [batch.epoch for batch in islice(stream, 2 * stream.n_packs(0) + 1)][-1] >= 1


def test_a_selection_streams_what_it_selects() -> None:
    stream = stream_of(SOURCE, min_tokens=6)
    assert stream.n_samples == 8
    assert all(batch.lengths.min() >= 6 for batch in stream)


def test_an_error_is_raised_where_its_batch_would_stand_and_the_same_batch_is_tried_again() -> None:
    source = source_of([5, 3, 8, 2, 9, 1, 7])
    order = [batch.sample_ids for batch in stream_of(source)]
    source.broken.add(order[2][0])
    stream = stream_of(source, prefetch=3)
    seen: list[tuple[str, ...]] = []
    with pytest.raises(OSError, match="is broken"):
        seen.extend(batch.sample_ids for batch in stream)
    assert stream.state_dict()["position"] == 2
    assert gone()
    source.broken.clear()
    assert [batch.sample_ids for batch in stream] == order[2:]


@many_workers
def test_an_error_in_a_worker_reaches_the_trainer() -> None:
    source = source_of([5, 3, 8, 2, 9, 1, 7])
    source.broken.update(source.samples)
    batches = iter(loader(stream_of(source), 2))
    with ended(batches), pytest.raises(OSError, match="is broken"):
        next(batches)


def test_threads_end_when_the_loop_is_dropped() -> None:
    batches = iter(stream_of(SOURCE, prefetch=3))
    next(batches)
    assert ours()
    del batches
    gc.collect()
    assert gone()


def test_nothing_is_fetched_and_no_thread_begun_before_the_first_step() -> None:
    source = source_of([3, 4])
    stream = stream_of(source)
    iter(stream)
    assert not source.asked
    assert not ours()


@many_workers
def test_a_loader_forks_while_another_loop_has_threads() -> None:
    running = iter(stream_of(SOURCE, prefetch=3))
    next(running)
    assert len(list(loader(stream_of(SOURCE), 2))) == len(list(stream_of(SOURCE)))
    assert len(list(running)) == len(list(stream_of(SOURCE))) - 1


@many_workers
def test_a_worker_begins_once() -> None:
    twice = loader(stream_of(SOURCE), 2, persistent_workers=True)
    list(twice)
    batches = iter(twice)
    with ended(batches), pytest.raises(StreamError, match="a worker cannot begin again"):
        next(batches)


def test_a_stream_can_be_sent_to_another_process() -> None:
    stream = stream_of(SOURCE)
    next(iter(stream))
    copy = pickle.loads(pickle.dumps(stream))
    assert [batch.sample_ids for batch in copy] == [batch.sample_ids for batch in stream]


def test_a_wiring_that_the_dataset_does_not_satisfy_raises_before_anything_is_fetched() -> None:
    source = source_of([3, 4], tiny_schema(("layer1", "final_normed")))
    with pytest.raises(RefusedError) as refused:
        stream_of(source)
    errors = [problem for problem in refused.value.problems if problem.severity == "error"]
    assert [(problem.role, problem.slot) for problem in errors] == [("fc", 1), ("fc", 2), ("target", None)]
    assert not source.asked


def test_options_that_do_not_go_together_are_all_named() -> None:
    with pytest.raises(StreamError) as refused:
        stream_of(
            SOURCE,
            tokens_per_batch=0,
            world_size=2,
            prefetch=-1,
            layout="x",
            format="y",
            epochs="1",
            pretech=1,
        )
    assert {problem.where for problem in refused.value.problems} == {
        "tokens_per_batch", "tail", "prefetch", "layout", "format", "epochs", "pretech",
    }  # fmt: skip


def test_options_of_another_type_are_all_named() -> None:
    with pytest.raises(StreamError) as refused:
        stream_of(SOURCE, seed="7", tokens_per_batch="16", world_size=2.0, rank=None, epochs=True)
    assert {problem.where for problem in refused.value.problems} == {
        "seed", "tokens_per_batch", "rank", "world_size", "epochs",
    }  # fmt: skip
    with pytest.raises(StreamError, match="seed: expected a whole number, got none"):
        open_stream(SOURCE, WIRING, tokens_per_batch=16)  # type: ignore[call-arg]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_pinned_memory_is_refused_where_there_is_none() -> None:
    with pytest.raises(StreamError, match="leave pin_memory out"):
        stream_of(SOURCE, pin_memory=True)


def test_what_is_cut_is_said(caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(source_of([40, 50, 3]), too_long="cut")
    (note,) = stream.notes
    assert "2 longer ones: cut to their first tokens" in note.message
    assert note.message in caplog.text


def test_the_whole_wiring_can_be_looked_at() -> None:
    assert stream_of(SOURCE).wiring.tensors == (*FC, "final")
    assert stream_of(SOURCE).wiring.title == f"{WIRING.consumer}=={WIRING.version}"
