"""Windows: written and read back, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.window import window_from, window_text

ENDS = st.none() | st.integers(0, 10**9)


@given(first=ENDS, end=ENDS)
def test_a_window_is_read_back_or_refused(first: int | None, end: int | None) -> None:
    window = slice(first, end)
    if end is not None and (first or 0) >= end:
        with pytest.raises(ValueError, match="at least one token"):
            window_text(window)
    else:
        assert window_from(window_text(window)) == window


@pytest.mark.parametrize(
    "text", ["", "5", "1:2:3", "-1:5", "a:b", " 1:2", "1:2\n", "+1:2", "1e3:", "²:³", "99999999999:", "1_0:"]
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FIRST:END"):
        window_from(text)


def test_a_step_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="consecutive"):
        window_text(slice(0, 8, 2))
