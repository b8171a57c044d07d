"""The response: damage before the first byte and after it, clients that leave, how far it reads ahead."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.types import Message

from datagen.store.errors import CorruptError
from service.access.limits import Allowances, Limits
from service.answers.pieces import Piece
from service.answers.streaming import HELD_PIECES, BodyResponse
from service.errors import TooManyError


class Made:
    """A piece of ten bytes, or one that is damaged."""

    def __init__(self, number: int, is_damaged: bool = False) -> None:
        self.number = number
        self.is_damaged = is_damaged
        self.n_reads = 0

    def read(self) -> memoryview:
        self.n_reads += 1
        if self.is_damaged:
            raise CorruptError(f"piece {self.number} is damaged")
        return memoryview(bytes([self.number]) * 10)


class Client:
    """The other end: notes what it is sent, and goes away after so many messages where it is told to."""

    def __init__(self, leaves_after: int | None = None) -> None:
        self.messages: list[Message] = []
        self._leaves_after = leaves_after
        self._left = asyncio.Event()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        if len(self.messages) == self._leaves_after:
            self._left.set()
        await asyncio.sleep(0)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def response(made: list[Made], limits: Limits | None = None, **given: Any) -> BodyResponse:
    parts: Iterator[Piece] = cast(Iterator[Piece], iter(made))
    return BodyResponse(parts, 10 * len(made), {"etag": '"a"'}, limits or Limits(), 10, **given)


def respond(answer: BodyResponse, client: Client) -> None:
    asyncio.run(_respond(answer, client))


async def _respond(answer: BodyResponse, client: Client) -> None:
    async with asyncio.timeout(10):
        await answer({"type": "http"}, client.receive, client.send)
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == 1, "expected nothing to hang on"


def test_a_body_is_sent_whole_with_its_length() -> None:
    client, limits = Client(), Limits()
    respond(response([Made(at) for at in range(5)], limits), client)
    assert client.body == b"".join(bytes([at]) * 10 for at in range(5))
    assert [message.get("more_body") for message in client.messages[1:]] == [True] * 4 + [False]
    assert dict(client.messages[0]["headers"]) == {b"etag": b'"a"', b"content-length": b"50"}
    assert limits.in_flight_bytes == 0


def test_only_the_head_of_it() -> None:
    made, client = [Made(0)], Client()
    respond(response(made, is_head=True), client)
    assert client.body == b""
    assert (b"content-length", b"10") in client.messages[0]["headers"]
    assert made[0].n_reads == 0


def test_damage_in_the_first_piece_is_told_before_anything_is_sent() -> None:
    client, limits = Client(), Limits()
    with pytest.raises(CorruptError, match="piece 0"):
        respond(response([Made(0, is_damaged=True), Made(1)], limits), client)
    assert client.messages == []
    assert limits.in_flight_bytes == 0


def test_damage_in_a_later_piece_breaks_off_without_the_end() -> None:
    client, limits = Client(), Limits()
    with pytest.raises(CorruptError, match="piece 2"):
        respond(response([Made(0), Made(1), Made(2, is_damaged=True), Made(3)], limits), client)
    assert client.body == b"\0" * 10 + b"\1" * 10
    assert client.messages[-1]["more_body"] is True
    assert limits.in_flight_bytes == 0


def test_a_client_that_goes_away_is_not_read_for() -> None:
    made, limits = [Made(at) for at in range(50)], Limits()
    respond(response(made, limits), Client(leaves_after=3))
    assert sum(piece.n_reads for piece in made) <= 5
    assert limits.in_flight_bytes == 0


def test_no_more_is_read_than_a_response_may_hold() -> None:
    """The transport takes a piece and then nothing: one lies in it, one waits, one is read ahead."""

    async def stalled() -> int:
        made, client, limits = [Made(at) for at in range(50)], Client(), Limits()

        async def send(message: Message) -> None:
            client.messages.append(message)
            if len(client.messages) > 2:  # the head, a piece that is taken, a piece that waits
                await asyncio.Event().wait()

        answer = response(made, limits)
        task = asyncio.ensure_future(answer({"type": "http"}, client.receive, send))
        while limits.in_flight_bytes < HELD_PIECES * 10:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert limits.in_flight_bytes == HELD_PIECES * 10
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert limits.in_flight_bytes == 0
        return sum(piece.n_reads for piece in made)

    assert asyncio.run(stalled()) == HELD_PIECES


def test_where_there_is_no_room_nothing_is_read() -> None:
    limits = Limits(Allowances(bytes_in_flight=35))
    made, client = [Made(at) for at in range(5)], Client()

    async def crowded() -> None:
        async with limits.flight(10):
            await response(made, limits)({"type": "http"}, client.receive, client.send)

    with pytest.raises(TooManyError):
        asyncio.run(crowded())
    assert client.messages == []
    assert made[0].n_reads == 0
