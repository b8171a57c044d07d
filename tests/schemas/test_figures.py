"""Counts and durations in words."""

import pytest

from schemas.figures import human_bytes, human_seconds


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (5.7e12, "5.7 TB"), (2e16, "20 PB")]
)
def test_bytes_in_words(count: float, words: str) -> None:
    assert human_bytes(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.24, "0.2 s"), (59, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (86400, "1 d")],
)
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert human_seconds(seconds) == words
