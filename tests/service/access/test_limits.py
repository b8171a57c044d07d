"""Token buckets, bytes in flight and sizes, on a clock of the test's own."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.access.caller import Caller
from service.access.limits import BURST_SECONDS, Allowances, Bucket, Limits
from service.errors import TooLargeError, TooManyError

TRAINER = Caller("aa", "trainer", "read")
OTHER = Caller("bb", "other", "read")
NOBODY = Caller(None, "anonymous", "admin")


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def refusal_of(limits: Limits, caller: Caller) -> TooManyError:
    with pytest.raises(TooManyError) as caught:
        limits.take_request(caller)
    return caught.value


def test_each_key_has_its_own_requests_a_second() -> None:
    clock = HandClock()
    limits = Limits(Allowances(requests_per_second=2), clock)
    for caller in (TRAINER, OTHER, NOBODY):
        for _ in range(int(2 * BURST_SECONDS)):
            limits.take_request(caller)
        refusal = refusal_of(limits, caller)
        assert refusal.retry_after_seconds == 1
        assert "expected at most 2 requests a second" in str(refusal)
        assert "ask again in 1 s" in str(refusal)
    clock.seconds += 0.5
    limits.take_request(TRAINER)
    refusal_of(limits, TRAINER)


def test_retry_after_is_long_enough() -> None:
    clock = HandClock()
    limits = Limits(Allowances(requests_per_second=0.1), clock)
    limits.take_request(TRAINER)
    wait = refusal_of(limits, TRAINER).retry_after_seconds
    assert wait == 10
    clock.seconds += wait
    limits.take_request(TRAINER)


def test_a_response_larger_than_the_bucket_passes_and_is_paid_for_after() -> None:
    clock = HandClock()
    limits = Limits(Allowances(bytes_per_second=1000), clock)
    limits.take_bytes(TRAINER, 10_000)
    with pytest.raises(TooManyError) as caught:
        limits.take_bytes(TRAINER, 1)
    assert caught.value.retry_after_seconds == 9
    limits.take_bytes(OTHER, 1)
    clock.seconds += 9
    limits.take_bytes(TRAINER, 1)


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(0.1, 1e6),
    steps=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1e6)), max_size=40),
)
def test_over_any_time_no_more_than_the_rate_and_a_burst(
    rate: float, steps: list[tuple[float, float]]
) -> None:
    """All that was taken but the last is within the rate, and what is told to wait for is enough."""
    clock = HandClock()
    bucket = Bucket(rate, clock)
    began, taken, last = clock.seconds, 0.0, 0.0
    for wait, amount in steps:
        clock.seconds += wait
        short = bucket.take(amount)
        if short == 0.0:
            taken, last = taken + amount, amount
        else:
            clock.seconds += short * (1 + 1e-9) + 1e-9
            assert bucket.take(amount) == 0.0
            taken, last = taken + amount, amount
        allowed = (clock.seconds - began) * rate + max(rate * BURST_SECONDS, 1.0)
        assert taken - last <= allowed * (1 + 1e-6) + 1e-6


def test_without_a_rate_nothing_is_counted() -> None:
    limits = Limits(Allowances(), HandClock())
    for _ in range(1000):
        limits.take_request(TRAINER)
        limits.take_bytes(TRAINER, 2**40)


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    clock = HandClock()
    bucket = Bucket(1.0, clock)
    assert bucket.take(3.0) == 0.0
    clock.seconds -= 50
    assert bucket.take(1.0) == 2.0


def test_bytes_in_flight_are_shared_and_given_back() -> None:
    limits = Limits(Allowances(bytes_in_flight=100))

    async def fly() -> None:
        async with limits.flight(60):
            assert limits.in_flight_bytes == 60
            with pytest.raises(TooManyError, match="in flight") as caught:
                async with limits.flight(41):
                    raise AssertionError("boarded")
            assert caught.value.retry_after_seconds >= 1
            async with limits.flight(40):
                assert limits.in_flight_bytes == 100
        with pytest.raises(RuntimeError, match="aborted"):
            async with limits.flight(10):
                raise RuntimeError("aborted")
        assert limits.in_flight_bytes == 0
        async with limits.flight(1000):
            assert limits.in_flight_bytes == 1000

    asyncio.run(fly())
    assert limits.in_flight_bytes == 0


def test_sizes() -> None:
    limits = Limits(Allowances(response_bytes=100, request_bytes=10))
    limits.check_response(100)
    limits.check_request(10)
    with pytest.raises(TooLargeError, match=r"expected at most 100 B, got 101 B \(ask for fewer"):
        limits.check_response(101)
    with pytest.raises(TooLargeError, match="expected at most 10 B, got 11 B"):
        limits.check_request(11)
