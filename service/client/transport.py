"""A request and its answer: sent again when that may help, never followed to another host, never half read.

Everything that the client asks for is a pure read, `POST` included, so any of it may be sent again: when a
connection is refused, breaks or falls silent, when an answer is cut short, and on 429, 502, 503 and 504.
"""

import email.message
import http.client
import json
import logging
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

from pydantic import TypeAdapter, ValidationError

from schemas.problem import Problem
from service.client.connections import DEFAULT_PORTS, Address, Connections
from service.client.errors import (
    AnsweredError,
    ClientError,
    ProtocolError,
    UnreachableError,
    error_of,
)
from service.wire.names import REQUEST_ID_HEADER

MAX_JSON_BYTES = 256 * 2**20
MAX_ERROR_BYTES = 2**20
MAX_REDIRECTS = 3
AGAIN = frozenset({429, 502, 503, 504})
"""The statuses after which the same request may well succeed."""

_log = logging.getLogger("strata.client")
_problems = TypeAdapter(tuple[Problem, ...])
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What is asked: `path` is quoted and starts with `/v1`; `body` is JSON."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


USUAL_RETRIES = 6
"""Of a client that is told no other number; more are told in the log as warnings."""


@dataclass(frozen=True)
class Patience:
    """How often and after which pauses a request is sent again.

    The n-th pause is random, up to `first_pause * 2**n` seconds and never over `longest_pause`, which also
    bounds what a service may ask for by `Retry-After`.
    """

    retries: int = USUAL_RETRIES
    first_pause: float = 0.25
    longest_pause: float = 30.0

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait before attempt `attempt + 1`."""
        return min(self.longest_pause, self.first_pause * 2.0**attempt) * random.uniform(0.5, 1.0)


class CutError(Exception):
    """An answer ended before its length."""


class _AgainError(Exception):
    """What went wrong may go well next time; `error` is what to raise otherwise."""

    def __init__(self, error: ClientError, pause: float | None = None, *, at_once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.pause = pause
        self.at_once = at_once


class Transport:
    """Sends requests to one service, each with the key; safe for threads."""

    def __init__(self, connections: Connections, key: str | None, patience: Patience) -> None:
        self.connections = connections
        self._patience = patience
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "strata-client"}
        if key is not None:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise ValueError("expected a key of printable ASCII characters, got others")
            self._headers["Authorization"] = f"Bearer {key}"

    def json(self, request: Request) -> tuple[bytes, email.message.Message]:
        """Return the body and the headers of a small answer."""
        return self.send(request, lambda answer: (read_all(answer, MAX_JSON_BYTES), answer.headers))

    def send(self, request: Request, read: Callable[[http.client.HTTPResponse], T]) -> T:
        """Return what `read` makes of the answer; it must read the body to its end, and may be called again.

        Raises `AnsweredError` for an error of the service, `UnreachableError` when the connection failed once
        more often than is retried, and `ProtocolError` for what is no HTTP.
        """
        attempt = 0
        while True:
            try:
                return self._send_once(request, read)
            except _AgainError as again:
                if again.at_once:
                    continue
                pause = self._patience.pause(attempt) if again.pause is None else again.pause
                if attempt >= self._patience.retries or pause > self._patience.longest_pause:
                    raise again.error from again.__cause__
                attempt += 1
                # Seconds of waiting are told to whoever has set up no log, too.
                level = logging.INFO if attempt <= USUAL_RETRIES else logging.WARNING
                _log.log(level, "%s %s: %s; again in %.2f s", request.method, request.path, again, pause)
                time.sleep(pause)

    def _send_once(self, request: Request, read: Callable[[http.client.HTTPResponse], T]) -> T:
        path = self.connections.address.prefix + request.path
        for _ in range(MAX_REDIRECTS + 1):
            result = self._exchange(request, path, read)
            if not isinstance(result, _Moved):
                return result
            path = self._moved_path(path, result.location)
        raise ProtocolError(f"{request.method} {request.path}: redirected more than {MAX_REDIRECTS} times")

    def _exchange(
        self, request: Request, path: str, read: Callable[[http.client.HTTPResponse], T]
    ) -> "T | _Moved":
        what = f"{request.method} {request.path.partition('?')[0]}"
        try:
            connection, was_used = self.connections.take()
        except OSError as error:
            raise self._broken(what, error) from error
        answer: http.client.HTTPResponse | None = None
        try:
            try:
                answer = self._answer(connection, request, path)
            except (ConnectionError, http.client.RemoteDisconnected) as error:
                # An idle connection may be closed by the service at any moment: nothing was lost.
                if was_used:
                    raise _AgainError(self._unreachable(what, error), at_once=True) from error
                raise
            return _read(answer, what, read)
        except (OSError, CutError, http.client.IncompleteRead) as error:
            raise self._broken(what, error) from error
        except http.client.HTTPException as error:
            raise ProtocolError(f"{what}: the answer is not HTTP: {type(error).__name__} {error}") from error
        finally:
            if answer is not None and answer.length == 0 and answer.isclosed() and not answer.will_close:
                self.connections.put_back(connection)
            else:
                connection.close()
                # An answer that ends with its connection holds the socket by itself.
                if answer is not None:
                    answer.close()

    def _answer(
        self, connection: http.client.HTTPConnection, request: Request, path: str
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(request.method, path, request.body, headers)
        return connection.getresponse()

    def _broken(self, what: str, error: Exception) -> Exception:
        """Return what a failed connection is raised as: again, unless that cannot help."""
        unreachable = self._unreachable(what, error)
        return unreachable if isinstance(error, ssl.SSLCertVerificationError) else _AgainError(unreachable)

    def _unreachable(self, what: str, error: Exception) -> UnreachableError:
        address = str(self.connections.address)
        message = f"expected an answer to {what}, got {type(error).__name__}: {error}"
        repair = "check that the service runs and that this URL reaches it"
        problem = Problem(where=address, kind="connection", message=message, repair=repair)
        return UnreachableError(f"cannot reach {address}", [problem])

    def _moved_path(self, path: str, location: str) -> str:
        address = self.connections.address
        here = Address(address.scheme, address.host, address.port, "")
        moved = urlsplit(urljoin(f"{here}{path}", location))
        port = moved.port if moved.port is not None else DEFAULT_PORTS.get(moved.scheme, 0)
        if (moved.scheme, moved.hostname, port) != (address.scheme, address.host, address.port):
            message = f"expected an answer of {here}, got a redirect to {location[:200]!r}"
            repair = "if that is where the service is, give the client that URL"
            problem = Problem(where="Location", kind="redirect", message=message, repair=repair)
            raise ProtocolError("a redirect to another host is not followed", [problem])
        return moved.path + (f"?{moved.query}" if moved.query else "")


@dataclass(frozen=True)
class _Moved:
    location: str


def _read(
    answer: http.client.HTTPResponse, what: str, read: Callable[[http.client.HTTPResponse], T]
) -> "T | _Moved":
    lengths = set(answer.headers.get_all("Content-Length", ()))
    if len(lengths) > 1 or answer.headers.get("Content-Encoding", "identity") != "identity":
        raise ProtocolError(f"{what}: expected one Content-Length and no encoding, got {answer.headers}")
    if answer.length is None and not answer.chunked:
        # It ends with the connection: nobody can tell a whole one from one that was cut, even in its head.
        raise _AgainError(ProtocolError(f"{what}: expected an answer that says its length, got none"))
    if answer.length and not answer.peek(1):
        raise CutError("nothing after the head")
    if answer.status == 200:
        return read(answer)
    body = read_all(answer, MAX_ERROR_BYTES)
    if answer.status in (307, 308) and (location := answer.headers.get("Location")):
        return _Moved(location)
    error = _error(answer, what, body)
    if answer.status in AGAIN:
        raise _AgainError(error, error.retry_after_seconds)
    raise error


def read_all(answer: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """Return a whole body; raises `ProtocolError` when it is over `max_bytes`, `CutError` when it is cut."""
    if (answer.length or 0) > max_bytes:
        raise ProtocolError(f"expected an answer of at most {max_bytes} bytes, got {answer.length}")
    expected = answer.length
    body = answer.read(max_bytes + 1)
    if expected is not None and len(body) < expected:
        raise CutError(f"{len(body)} of {expected} bytes")
    if len(body) > max_bytes:
        raise ProtocolError(f"expected an answer of at most {max_bytes} bytes, got more")
    return body


def _error(answer: http.client.HTTPResponse, what: str, body: bytes) -> AnsweredError:
    """Return the error of an answer: problem+json as it is, anything else by its status."""
    title = f"{answer.status} {answer.reason}"
    problems: tuple[Problem, ...] = ()
    request_id = answer.headers.get(REQUEST_ID_HEADER)
    try:
        content = json.loads(body)
        title = str(content.get("title", title))
        request_id = request_id or content.get("request_id")
        problems = _problems.validate_python(content.get("problems", ()))
    except (ValueError, AttributeError, RecursionError, ValidationError):
        # Not ours: a proxy's page, or another service at this address.
        title = f"{title}: {body[:200]!r}"
    wait = answer.headers.get("Retry-After", "")
    return error_of(answer.status)(
        f"{what}: {title}" + (f" (request {request_id})" if request_id else ""),
        problems,
        status=answer.status,
        request_id=request_id,
        retry_after_seconds=float(wait) if wait.isascii() and wait.isdigit() else None,
    )
