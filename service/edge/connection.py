"""How long, and with how much, a connection may keep the server busy without a request or a read.

uvicorn closes a connection that is idle between requests; it waits for ever for the rest of a head that has
begun, takes a head of any size, and waits for ever for a reader. Here a head has a time and a size, and the
kernel gives up a peer that takes none of what lies ready for it.
"""

import asyncio
import socket
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 30.0
"""From the connection, or a head's first byte, to the end of that head."""

HEAD_BYTES = 64 * 1024
"""Of a request line and its headers; what arrives together with a whole head is not counted."""

STALL_SECONDS = 120
"""How long a peer may take no byte of a response; Linux only (`TCP_USER_TIMEOUT`, tcp(7))."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which does not wait for ever for a head, nor keep one of any size."""

    _head_bytes = 0
    _awaited: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._head_arrived()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the head that begins."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Hand on a whole head."""
        self._head_arrived()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take bytes; refuse a head that is not whole after so many."""
        super().data_received(data)
        if self._awaited is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _await_head(self) -> None:
        self._head_arrived()
        self._head_bytes = 0
        self._awaited = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _head_is_late(self) -> None:
        if self._is_answering:  # the request before it: its response is not cut off for this one
            self._await_head()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        self._head_arrived()
        if self.transport.is_closing():
            return
        if not self._is_answering:
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            self.transport.write(f"{line}connection: close\r\ncontent-length: 0\r\n\r\n".encode("ascii"))
        self.transport.close()


def give_up_stalled(listening: socket.socket) -> None:
    """Let the kernel end each connection to `listening` whose peer takes nothing of what is sent to it."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listening.setsockopt(socket.IPPROTO_TCP, option, STALL_SECONDS * 1000)
