"""Server processes that the serving measurements talk to, and the barest client there is: a socket."""

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import create_app
from service.settings import Settings

_RECEIVED_BYTES = 2**20

Target = Callable[[Connection, str], None]


def strata(ready: Connection, root: str) -> None:
    """Serve the datasets of `root`, as `strata serve` does."""
    _run(ready, create_app(Settings(root=root, port=0)))


def file_response(ready: Connection, path: str) -> None:
    """Serve one file by Starlette's `FileResponse`, for any request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            Request(scope)
            await FileResponse(path)(scope, receive, send)

    _run(ready, app)


def sendfile(ready: Connection, path: str) -> None:
    """Send one file by `sendfile`, unchecked, for any request: nothing in Python is nearer to the kernel."""
    size = os.path.getsize(path)
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode()

    def serve(connection: socket.socket) -> None:
        # As uvloop does: else the last segment may wait for an acknowledgement that waits for more.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, open(path, "rb") as file:
            while connection.recv(65536):
                connection.sendall(head)
                at = 0
                while at < size:
                    at += os.sendfile(connection.fileno(), file.fileno(), at, size - at)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        ready.send(listening.getsockname()[1])
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


def _run(ready: Connection, app: ASGIApp) -> None:
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", log_config=None, access_log=False
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ready.send(listening.getsockname()[1])
        uvicorn.Server(config).run([listening])


@contextmanager
def process(target: Target, path: Path) -> Iterator[tuple[int, int]]:
    """Run a server in a process of its own, and give its port and process id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, str(path)), daemon=True)
    child.start()
    theirs.close()  # so that a child that dies is the end of the pipe, and not a wait for ever
    try:
        port = ours.recv()
        assert child.pid is not None
        yield port, child.pid
    finally:
        child.terminate()
        child.join()


class Fetcher:
    """One kept-alive connection that asks for one path again and again.

    Bodies of `size` bytes are received into one small buffer: it is the server that is measured.
    """

    def __init__(self, port: int, path: str, size: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
        self.size = size
        self._buffer = memoryview(bytearray(_RECEIVED_BYTES))

    def ask(self) -> int:
        """Send the request, and return how many bytes of the body came with the head."""
        self._socket.sendall(self._request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._socket.recv(4096)
        said, _, rest = head.partition(b"\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200"), said
        return len(rest)

    def fetch(self) -> None:
        """Ask, and receive the whole body."""
        self.rest(self.ask())

    def rest(self, at: int) -> None:
        """Receive the body from byte `at` on."""
        while at < self.size:
            n_bytes = self._socket.recv_into(self._buffer[: self.size - at])
            assert n_bytes, "the connection was closed in the middle"
            at += n_bytes

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
