"""A request's body, taken whole before the application sees it: never more than allowed, never for long.

What a body of this service holds is a list of ids at most, so that one is small; who sends more, or trickles,
or goes away in the middle, is let go of here and holds nothing of the application.
"""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.errors import StrataError
from schemas.problem import Problem
from service.access.limits import Limits
from service.edge.responses import of_error
from service.errors import TooSlowError

BODY_SECONDS = 30.0
"""How long a body may take to arrive."""


class _GoneError(Exception):
    """Who asked went away before all was said."""


class RequestSize:
    """Hands requests on with their body in one piece, or answers that it is too large, or too slow."""

    def __init__(self, app: ASGIApp, limits: Limits, body_seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._limits = limits
        self._seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if not headers.keys() & {b"content-length", b"transfer-encoding"}:
            await self._app(scope, receive, send)
            return
        try:
            body = await self._whole(headers, receive)
        except _GoneError:
            return
        except StrataError as error:
            refusal = of_error(Request(scope), error)
            # What is still under way of the body would be read to its end otherwise.
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    async def _whole(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        said = headers.get(b"content-length", b"0")
        self._limits.check_request(int(said) if said.isdigit() else 0)
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _GoneError
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    self._limits.check_request(size)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError as error:
            late = f"expected the whole body within {self._seconds:g} s, got {size} bytes"
            problem = Problem(where="body", kind="slow", message=late, repair="send it in one go")
            raise TooSlowError("the request's body is too slow", [problem]) from error


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that gives the body once, and then what comes after it."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
