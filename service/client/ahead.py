"""Works ahead of who consumes: the next results are made by threads, and handed out in order.

Threads begin with the first result that is asked for, in the process that asks, and end with the iterator.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

MAX_THREADS = 8


def ahead(jobs: Iterable[Job], work: Callable[[Job], Result], depth: int) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result, in order; `depth` of them are begun before they are asked for.

    With a depth of 0 each is made when it is asked for. An error is raised where its result would stand.
    """
    if depth == 0:
        for job in jobs:
            yield job, work(job)
        return
    jobs = iter(jobs)
    threads = ThreadPoolExecutor(min(depth, MAX_THREADS), thread_name_prefix="strata-stream")
    begun: deque[tuple[Job, Future[Result]]] = deque()
    try:
        begun.extend((job, threads.submit(work, job)) for job in islice(jobs, depth))
        while begun:
            job, made = begun.popleft()
            result = made.result()
            begun.extend((later, threads.submit(work, later)) for later in islice(jobs, 1))
            yield job, result
            del result, made
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
