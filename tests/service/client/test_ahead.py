"""Working ahead keeps the order, is bounded, says errors where they belong, and leaves no thread behind."""

import threading
import time
from collections.abc import Iterator

import pytest

from service.client.ahead import MAX_THREADS, ahead


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("strata-stream")]


def gone() -> bool:
    """Say whether all threads of streams end, waiting for them a while."""
    until = time.monotonic() + 10
    while ours() and time.monotonic() < until:
        time.sleep(0.005)
    return not ours()


@pytest.mark.parametrize("depth", [0, 1, 2, 20])
def test_results_come_in_the_order_of_the_jobs(depth: int) -> None:
    def work(job: int) -> int:
        time.sleep(0.002 * (job % 3))
        return job * job

    assert list(ahead(range(12), work, depth)) == [(job, job * job) for job in range(12)]
    assert gone()


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_more_is_begun_than_was_asked_for(depth: int) -> None:
    begun = 0

    def jobs() -> Iterator[int]:
        nonlocal begun
        while True:
            begun += 1
            yield begun

    results = ahead(jobs(), str, depth)
    for taken in range(1, 10):
        next(results)
        assert begun == taken + depth


def test_an_error_stands_where_its_result_would() -> None:
    def work(job: int) -> int:
        if job == 2:
            raise OSError("broken")
        return job

    results = ahead(range(9), work, 4)
    assert [next(results)[0], next(results)[0]] == [0, 1]
    with pytest.raises(OSError, match="broken"):
        next(results)
    assert gone()


def test_threads_end_when_the_iterator_is_dropped() -> None:
    results = ahead(range(1000), str, 3)
    next(results)
    assert ours()
    del results
    assert gone()


def test_work_runs_ahead_of_who_consumes() -> None:
    made = threading.Semaphore(0)

    def work(job: int) -> int:
        made.release()
        return job

    results = ahead(range(9), work, 2)
    next(results)
    for _ in range(3):
        assert made.acquire(timeout=10), "expected the next two to be made while the first is consumed"


def test_what_was_not_begun_when_the_iterator_is_dropped_is_never_done() -> None:
    go_on, begun = threading.Event(), []

    def work(job: int) -> int:
        begun.append(job)
        if job:
            go_on.wait(10)
        return job

    results = ahead(range(1000), work, 3 * MAX_THREADS)
    next(results)
    del results
    go_on.set()
    assert gone()
    assert len(begun) <= 1 + MAX_THREADS
