"""A body is taken whole, within its size and its time, before the application sees it."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.access.limits import Allowances, Limits
from service.edge.request_size import RequestSize


class Recording:
    """An application that reads its request's body, and remembers it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Exchange:
    """One request, sent in pieces, and what came of it."""

    def __init__(
        self, headers: dict[bytes, bytes], messages: Sequence[Message], seconds: float = 30.0
    ) -> None:
        self.app = Recording()
        self.sent: list[Message] = []
        self.left = list(messages)
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/check",
            "query_string": b"",
            "headers": list(headers.items()),
        }
        guarded = RequestSize(self.app, Limits(Allowances(request_bytes=10)), body_seconds=seconds)
        asyncio.run(asyncio.wait_for(guarded(scope, self._receive, self._send), 20))

    async def _receive(self) -> Message:
        if not self.left:
            await asyncio.Event().wait()
        return self.left.pop(0)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def problem(self) -> dict[str, str]:
        (problem,) = json.loads(self.sent[1]["body"])["problems"]
        assert isinstance(problem, dict)
        return problem


def piece(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


CHUNKED = {b"transfer-encoding": b"chunked"}


def test_a_body_within_the_limit_arrives_whole() -> None:
    exchange = Exchange(CHUNKED, [piece(b"12345", True), piece(b"", True), piece(b"67890", False)])
    assert exchange.status == 200
    assert exchange.app.bodies == [b"1234567890"]


def test_no_body_is_waited_for_where_none_is_said() -> None:
    assert Exchange({}, [piece(b"", False)]).app.bodies == [b""]


def test_a_length_over_the_limit_is_refused_before_a_byte_is_read() -> None:
    exchange = Exchange({b"content-length": b"11"}, [])
    assert exchange.status == 413
    assert "expected at most 10 B, got 11 B" in exchange.problem["message"]
    assert exchange.problem["repair"]


def test_more_than_was_said_is_refused_as_it_comes() -> None:
    exchange = Exchange(CHUNKED, [piece(b"123456", True), piece(b"78901", True), piece(b"never read", False)])
    assert exchange.status == 413
    assert exchange.app.bodies == []
    assert len(exchange.left) == 1


@pytest.mark.parametrize("pieces", [[], [piece(b"123", True)]], ids=["nothing", "a part"])
def test_a_body_that_does_not_come_is_given_up(pieces: list[Message]) -> None:
    exchange = Exchange({b"content-length": b"9"}, pieces, seconds=0.05)
    assert exchange.status == 408
    assert exchange.app.bodies == []


def test_who_goes_away_in_the_middle_is_let_go_of() -> None:
    exchange = Exchange({b"content-length": b"9"}, [piece(b"123", True), {"type": "http.disconnect"}])
    assert exchange.sent == []
    assert exchange.app.bodies == []
