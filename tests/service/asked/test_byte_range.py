"""Conditional and partial requests, judged as RFC 9110 says, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.asked.byte_range import Asked, Refused, asked_for

ETAG = '"0123"'


def asked(size: int = 100, method: str = "GET", **headers: str) -> Asked | Refused:
    return asked_for(method, {name.replace("_", "-"): value for name, value in headers.items()}, ETAG, size)


@pytest.mark.parametrize(
    ("given", "first", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=99-", 99, 100),
        ("bytes=10-19", 10, 20),
        ("bytes=90-1000", 90, 100),
        ("bytes=-1", 99, 100),
        ("bytes=-1000", 0, 100),
        ("BYTES = 5-6", 5, 7),
        (f"bytes=0-{10**18}", 0, 100),
    ],
)
def test_one_range(given: str, first: int, end: int) -> None:
    said = given.replace(" ", "")
    assert asked(range=said) == Asked(206, first, end)


@pytest.mark.parametrize(
    "given",
    [
        "bytes=",
        "bytes=-",
        "bytes=5",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=100-",
        "bytes=100-200",
        "bytes=-0",
        "bytes=--1",
        "bytes=0-1,3-4",
        "bytes=" + ",".join(f"{at}-{at}" for at in range(5000)),
        "bytes=" + "9" * 10_000 + "-",
        "bytes=0x0-1",
        "bytes=²-3",
    ],
)
def test_what_is_no_range_within_is_refused(given: str) -> None:
    assert isinstance(asked(range=given), Refused)
    assert len(asked(range=given).message) < 200  # type: ignore[union-attr]


@given(
    size=st.integers(1, 300),
    first=st.none() | st.integers(0, 400),
    last=st.none() | st.integers(0, 400),
)
def test_any_range_is_what_python_would_slice_or_refused(
    size: int, first: int | None, last: int | None
) -> None:
    found = asked(size, range=f"bytes={'' if first is None else first}-{'' if last is None else last}")
    whole = range(size)
    if first is None:
        wanted = whole[max(0, size - last) :] if last is not None else range(0)
    else:
        wanted = whole[first : size if last is None else last + 1]
    if isinstance(found, Refused):
        assert not wanted
    else:
        assert (found.status, range(found.first, found.end)) == (206, wanted)


WHOLE = Asked(200, 0, 100)


def test_what_is_ignored() -> None:
    assert asked() == WHOLE
    assert asked(range="items=0-1") == WHOLE
    assert asked(range="bytes=0-1", method="HEAD") == WHOLE
    assert asked(range="bytes=0-1", method="POST") == WHOLE
    assert asked(if_none_match=ETAG, method="POST") == WHOLE


def test_a_range_only_of_what_the_client_has_already() -> None:
    assert asked(range="bytes=0-1", if_range=ETAG) == Asked(206, 0, 2)
    assert asked(range="bytes=0-1", if_range='"other"') == WHOLE
    assert asked(range="bytes=0-1", if_range="W/" + ETAG) == WHOLE
    assert asked(range="bytes=0-1", if_range="Mon, 30 Nov 2026 00:00:00 GMT") == WHOLE
    assert asked(range="bytes=500-", if_range='"other"') == WHOLE


@pytest.mark.parametrize("given", [ETAG, "W/" + ETAG, f'"a", {ETAG}', "*", f'"a",W/{ETAG} '])
def test_what_the_client_has_is_not_sent_again(given: str) -> None:
    for method in ("GET", "HEAD"):
        assert asked(if_none_match=given, method=method).status == 304  # type: ignore[union-attr]
    assert asked(if_none_match=given, range="bytes=0-1").status == 304  # type: ignore[union-attr]


@pytest.mark.parametrize("given", ['"a"', "0123", '"012"', ""])
def test_another_etag_is_no_match(given: str) -> None:
    assert asked(if_none_match=given) == WHOLE
