"""A server on a raw socket that does what it is told, however wrong: one action a request."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from schemas.schema import Schema
from service.wire.names import DATASET_HEADER, SCHEMA_HEADER, VERSION_HEADER

Action = Callable[[socket.socket], None]
"""Answers one request on its connection, which is closed when it raises `Hangup`."""


class Hangup(Exception):  # noqa: N818 - what a server does, not what goes wrong
    """Close the connection."""


@dataclass
class Misbehaving:
    """Where the server listens, the requests that it has heard, and how many connections it took."""

    url: str
    heard: list[bytes] = field(default_factory=list)
    n_connections: int = 0

    def headers(self, number: int) -> dict[str, str]:
        """Return the headers of a request, names in lower case."""
        lines = self.heard[number].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


@contextmanager
def misbehaving(actions: Sequence[Action]) -> Iterator[Misbehaving]:
    """Run a server that answers each request by the next action, and the last one for ever after."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Misbehaving(f"http://127.0.0.1:{listening.getsockname()[1]}")
        threads: list[threading.Thread] = []
        threads.append(_started(_serve, listening, list(actions), server, threads))
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()


def _started(work: Callable[..., None], *given: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    return thread


def _serve(
    listening: socket.socket, actions: list[Action], server: Misbehaving, threads: list[threading.Thread]
) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        server.n_connections += 1
        threads.append(_started(_answer, connection, actions, server))


def _answer(connection: socket.socket, actions: list[Action], server: Misbehaving) -> None:
    with connection, suppress(Hangup, OSError):
        connection.settimeout(10)
        while request := _request(connection):
            server.heard.append(request)
            action = actions.pop(0) if len(actions) > 1 else actions[0]
            action(connection)


def _request(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            return b""
        head += data
    text, _, body = head.partition(b"\r\n\r\n")
    for line in text.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        if name.lower() == b"content-length":
            while len(body) < int(value):
                body += connection.recv(65536)
    return text


def answer_bytes(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Return an answer as HTTP writes it; `headers` may overwrite the length."""
    given = {"Content-Length": str(len(body)), **(headers or {})}
    lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def answering(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Action:
    """Answer, and go on listening."""
    data = answer_bytes(status, body, headers)
    return lambda connection: connection.sendall(data)


def problem(status: int, headers: Mapping[str, str] | None = None, problems: Sequence[object] = ()) -> Action:
    """Answer an error as the service does."""
    body = json.dumps({"title": "told to fail", "status": status, "problems": list(problems)}).encode()
    return answering(status, body, headers)


def sending(data: bytes) -> Action:
    """Send bytes, and hang up."""

    def act(connection: socket.socket) -> None:
        connection.sendall(data)
        raise Hangup

    return act


def stall(connection: socket.socket) -> None:
    """Say nothing until the client gives up."""
    connection.recv(1)
    raise Hangup


def version_headers(schema: Schema, number: int = 1, dataset: str = "demo") -> dict[str, str]:
    """Return the headers of an answer of a version."""
    return {DATASET_HEADER: dataset, VERSION_HEADER: str(number), SCHEMA_HEADER: schema.fingerprint}


def schema_answer(schema: Schema, number: int = 1) -> Action:
    """Answer a version's schema."""
    body = json.dumps({"declared": schema.model_dump(mode="json")}).encode()
    return answering(200, body, version_headers(schema, number))
