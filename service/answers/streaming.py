"""The response that sends a body piece by piece: the next is read and checked while the current one is sent.

The first piece is checked before the response starts, so damage in it is an error with its name. Damage in a
later one breaks the connection off, short of the length that was announced: nobody takes such a body for
whole. A response holds three pieces at most, however slow its reader: one that is being read, one that waits,
and one in the transport. Each lies in memory of its own that is never written again, since a transport keeps
what it was given until the socket has taken it.
"""

import asyncio
from collections.abc import Iterator, Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.access.limits import Limits
from service.answers.pieces import Piece

HELD_PIECES = 3


class BodyResponse(Response):
    """Sends `size` bytes, those of `pieces`; or only the head of that response, with `is_head`.

    `held_bytes` is what one piece holds at most; `limits` count three of them while it is under way.
    """

    def __init__(
        self,
        pieces: Iterator[Piece],
        size: int,
        headers: Mapping[str, str],
        limits: Limits,
        held_bytes: int,
        *,
        status_code: int = 200,
        is_head: bool = False,
    ) -> None:
        super().__init__(status_code=status_code)
        self.init_headers({**headers, "content-length": str(size)})
        self._pieces = pieces
        self._size = size
        self._limits = limits
        self._held_bytes = min(size, HELD_PIECES * held_bytes)
        self._is_head = is_head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        start: Message = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        if self._is_head:
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        async with self._limits.flight(self._held_bytes):
            first = await self._ahead()
            await send(start)
            await self._send_all(first, receive, send)

    async def _send_all(self, piece: memoryview, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        ahead: asyncio.Future[memoryview] | None = None
        n_sent = 0
        try:
            while not gone.done():
                n_sent += len(piece)
                ahead = self._ahead() if n_sent < self._size else None
                await send({"type": "http.response.body", "body": piece, "more_body": ahead is not None})
                if ahead is None:
                    return
                piece = await ahead
        finally:
            gone.cancel()
            if ahead is not None:
                ahead.cancel()

    def _ahead(self) -> "asyncio.Future[memoryview]":
        """Read the next piece in a thread; one at a time."""
        return asyncio.get_running_loop().run_in_executor(None, self._read_next)

    def _read_next(self) -> memoryview:
        piece = next(self._pieces, None)
        # A `StopIteration` could not be carried by a future: the response would wait for ever.
        assert piece is not None, "expected pieces of the size that was announced"
        return piece.read()


async def _gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
