"""How much a caller may ask for, and how much of it this process does at once.

Requests and bytes per second are token buckets, one pair a key; bytes in flight are counted a process; a
response and a request's body have a largest size. Whatever is over is refused with what to do, never queued.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from threading import Lock

from schemas.figures import human_bytes
from schemas.problem import Problem
from service.access.caller import Caller
from service.errors import TooLargeError, TooManyError

Clock = Callable[[], float]

BURST_SECONDS = 2.0
"""A bucket holds so many seconds' worth: a caller that paused may catch up by this much."""


@dataclass(frozen=True)
class Allowances:
    """What is allowed; None is without limit."""

    requests_per_second: float | None = None
    """By each key; anonymous callers share one."""
    bytes_per_second: float | None = None
    """Of response bodies, by each key and process."""
    bytes_in_flight: int = 256 * 2**20
    """Of buffers that responses hold at the same time, in this process."""
    response_bytes: int = 2 * 2**30
    """Of one response's body."""
    request_bytes: int = 4 * 2**20
    """Of one request's body."""


class Bucket:
    """A token bucket that may go into debt: what is larger than the bucket passes, and is paid for after.

    `rate` is in tokens a second. Takers share it across threads.
    """

    def __init__(self, rate: float, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._most = max(rate * BURST_SECONDS, 1.0)
        self._clock = clock
        self._level = self._most
        self._seen = clock()
        self._lock = Lock()

    def take(self, amount: float) -> float:
        """Take `amount` and return 0.0, or take nothing and return the seconds until there is some.

        >>> bucket = Bucket(rate=1.0, clock=lambda: 0.0)
        >>> bucket.take(5.0), bucket.take(1.0)
        (0.0, 4.0)
        """
        with self._lock:
            now = self._clock()
            self._level = min(self._most, self._level + max(0.0, now - self._seen) * self._rate)
            self._seen = now
            # A whole token, so that a slow bucket still gives one in the end.
            wanted = min(amount, 1.0)
            if self._level < wanted:
                return (wanted - self._level) / self._rate
            self._level -= amount
            return 0.0


class Limits:
    """The allowances of one process and what is used of them. Every refusal says what to do."""

    def __init__(self, allowances: Allowances = Allowances(), clock: Clock = time.monotonic) -> None:
        self.allowances = allowances
        self._clock = clock
        self._requests: dict[str, Bucket] = {}
        self._bytes: dict[str, Bucket] = {}
        self._in_flight = 0
        self._lock = Lock()

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of buffers that responses hold now."""
        return self._in_flight

    def take_request(self, caller: Caller) -> None:
        """Count a request of `caller`; raises `TooManyError` when it asks more often than its key may."""
        rate = self.allowances.requests_per_second
        if rate is not None:
            self._take(self._requests, rate, caller, 1.0, f"at most {rate:g} requests a second")

    def take_bytes(self, caller: Caller, n_bytes: int) -> None:
        """Count a response's `n_bytes`; raises `TooManyError` while `caller` is over its bytes a second."""
        rate = self.allowances.bytes_per_second
        if rate is not None:
            self._take(
                self._bytes, rate, caller, float(n_bytes), f"at most {human_bytes(round(rate))} a second"
            )

    def check_response(self, n_bytes: int) -> None:
        """Raise `TooLargeError` when a response of `n_bytes` is more than one may hold."""
        most = self.allowances.response_bytes
        if n_bytes > most:
            raise TooLargeError(
                "the response would be too large",
                [_too_large("response", most, n_bytes, "ask for fewer samples, names or tokens at once")],
            )

    def check_request(self, n_bytes: int) -> None:
        """Raise `TooLargeError` when a request's body of `n_bytes` is more than one may hold."""
        most = self.allowances.request_bytes
        if n_bytes > most:
            raise TooLargeError(
                "the request's body is too large",
                [_too_large("body", most, n_bytes, "ask for fewer samples at once")],
            )

    @asynccontextmanager
    async def flight(self, n_bytes: int) -> AsyncIterator[None]:
        """Hold `n_bytes` of buffers while a response is under way.

        Raises `TooManyError` when this process has no room for them now.
        """
        self._board(n_bytes)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= n_bytes

    def _board(self, n_bytes: int) -> None:
        most = self.allowances.bytes_in_flight
        with self._lock:
            # What is larger than the whole of it goes alone rather than never.
            if self._in_flight and self._in_flight + n_bytes > most:
                message = (
                    f"expected at most {human_bytes(most)} in flight, got {human_bytes(self._in_flight)} "
                    f"and {human_bytes(n_bytes)} more"
                )
                problem = Problem(where="service", kind="in-flight", message=message, repair=_later(1))
                raise TooManyError("the service is busy", [problem], retry_after_seconds=1)
            self._in_flight += n_bytes

    def _take(
        self, buckets: dict[str, Bucket], rate: float, caller: Caller, amount: float, allowed: str
    ) -> None:
        with self._lock:
            bucket = buckets.setdefault(caller.key_id or "", Bucket(rate, self._clock))
        seconds = bucket.take(amount)
        if seconds > 0:
            wait = max(1, ceil(seconds))
            problem = Problem(
                where=f"key {caller.name}",
                kind="rate",
                message=f"expected {allowed}, got more",
                repair=_later(wait),
            )
            raise TooManyError("too much is asked for at once", [problem], retry_after_seconds=wait)


def _later(seconds: int) -> str:
    return f"ask again in {seconds} s or later, as Retry-After says"


def _too_large(where: str, most: int, got: int, repair: str) -> Problem:
    message = f"expected at most {human_bytes(most)}, got {human_bytes(got)}"
    return Problem(where=where, kind="size", message=message, repair=repair)
