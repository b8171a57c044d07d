"""A cursor is read back as it was written, and nothing else is one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.asked.cursor import Cursor
from service.errors import MalformedError


@given(st.integers(1, 99_999_999), st.binary(min_size=32, max_size=32))
def test_a_cursor_is_read_back(version: int, sample_id: bytes) -> None:
    cursor = Cursor(version, sample_id.hex())
    assert Cursor.read(str(cursor)) == cursor
    assert str(cursor).replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=80))
def test_nothing_else_is_a_cursor(text: str) -> None:
    with pytest.raises(MalformedError, match="expected `next_cursor`"):
        Cursor.read(text)


@pytest.mark.parametrize("plain", ["0." + "a" * 64, "1." + "A" * 64, "1." + "a" * 63, "1", "٣." + "a" * 64])
def test_a_cursor_of_another_kind_is_refused(plain: str) -> None:
    with pytest.raises(MalformedError):
        Cursor.read(base64.urlsafe_b64encode(plain.encode()).decode().rstrip("="))
