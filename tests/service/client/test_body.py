"""Whatever becomes of an answer's bytes: rows are those that were sent, or there is an error and no rows."""

import http.client
import io
import socket
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.client.body import Asked, WrongBytesError, receive, shapes_of
from service.client.errors import ProtocolError
from service.client.transport import CutError
from tests.service.client.misbehaving import answer_bytes, version_headers
from tests.service.client.told import NAMES, SAMPLE, SCHEMA, array_bytes, body_of

BODY = body_of()
HEAD_BYTES = len(BODY) - sum(map(len, array_bytes(SAMPLE).values()))
ASKED = Asked("demo", 1, SCHEMA.fingerprint, shapes_of(SCHEMA), (SAMPLE.sample_id,), NAMES)


class Sent:
    """A socket that has already received everything."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._data))


def answer_of(body: bytes, length: int) -> http.client.HTTPResponse:
    headers = {**version_headers(SCHEMA), "Content-Length": str(length)}
    answer = http.client.HTTPResponse(cast(socket.socket, Sent(answer_bytes(200, body, headers))))
    answer.begin()
    return answer


def received(body: bytes, length: int) -> dict[str, bytes]:
    rows = receive(answer_of(body, length), ASKED, None, check=True)
    return {name: values.tobytes() for name, values in {**rows.tensors, **rows.tokens}.items()}


def test_the_right_body_is_received() -> None:
    assert received(BODY, len(BODY)) == array_bytes(SAMPLE)


@settings(max_examples=400, deadline=None)
@given(
    at=st.one_of(st.integers(0, HEAD_BYTES - 1), st.integers(0, len(BODY) - 1)),
    put=st.binary(min_size=0, max_size=12),
    taken=st.integers(0, 12),
    says=st.one_of(st.just(None), st.integers(0, 2 * len(BODY))),
)
@example(at=0, put=b"\xff" * 8, taken=8, says=None)
@example(at=len(BODY) - 1, put=b"", taken=1, says=len(BODY))
def test_changed_bodies_are_never_other_rows(at: int, put: bytes, taken: int, says: int | None) -> None:
    body = BODY[:at] + put + BODY[at + taken :]
    try:
        rows = received(body, len(body) if says is None else says)
    except (ProtocolError, CutError, WrongBytesError, http.client.IncompleteRead):
        return
    assert rows == array_bytes(SAMPLE)


@pytest.mark.parametrize("n_bytes", range(0, len(BODY), 97))
def test_a_body_that_ends_early_is_cut(n_bytes: int) -> None:
    with pytest.raises((CutError, ProtocolError)):
        received(BODY[:n_bytes], len(BODY))
