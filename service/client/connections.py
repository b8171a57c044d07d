"""Connections to one service, kept open between requests; each thread and each process has its own in use.

Nothing here takes a lock: a child that is forked while another thread holds one would wait for ever. A child
drops its copies of the parent's connections, which the parent goes on using.
"""

import http.client
import os
import select
import socket
import ssl
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """Where a service listens: `prefix` is the path above `/v1`, without a slash at its end."""

    scheme: str
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL; raises `ValueError` for one that is not `http[s]://HOST[:PORT][/PREFIX]`.

        >>> Address.parse("http://127.0.0.1:8350/")
        Address(scheme='http', host='127.0.0.1', port=8350, prefix='')
        """
        parts = urlsplit(url)
        wrong = parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment
        if wrong or parts.username is not None or any(character.isspace() for character in url):
            raise ValueError(f"expected http://HOST:PORT or https://HOST:PORT, got {url!r}")
        port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


class Connections:
    """A stack of idle connections to `address`; a request takes one out, and puts it back when it is whole.

    `opened` counts the connections that this process has opened.
    """

    def __init__(self, address: Address, timeout: float, connect_timeout: float) -> None:
        self.address = address
        self.opened = 0
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._mine = (os.getpid(), self._new_stack())

    def _new_stack(self) -> "deque[http.client.HTTPConnection]":
        stack: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, stack)
        return stack

    def _idle(self) -> "deque[http.client.HTTPConnection]":
        pid, stack = self._mine
        if pid != os.getpid():
            # Closes this process's descriptors only: no byte is sent on what the parent still uses.
            _close_all(stack)
            stack = self._new_stack()
            self._mine, self.opened = (os.getpid(), stack), 0
        return stack

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it has been used before: the service may just be closing it.

        Raises `OSError` when none can be opened.
        """
        stack = self._idle()
        while stack:
            try:
                connection = stack.pop()
            except IndexError:
                break
            if connection.sock is not None and not _has_news(connection.sock):
                return connection, True
            connection.close()
        return self._open(), False

    def put_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose last answer was read to its end."""
        self._idle().append(connection)

    def close(self) -> None:
        """Close what is idle."""
        _close_all(self._idle())

    def _open(self) -> http.client.HTTPConnection:
        address = self.address
        # The receive buffer is left to the kernel: it grows further by itself than a size set here may.
        sock = socket.create_connection((address.host, address.port), self._connect_timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if address.scheme == "https":
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=address.host)
            sock.settimeout(self._timeout)
        except BaseException:
            sock.close()
            raise
        connection = http.client.HTTPConnection(address.host, address.port)
        if address.port == DEFAULT_PORTS[address.scheme]:
            connection.default_port = address.port
        connection.auto_open = 0
        connection.sock = sock
        self.opened += 1
        return connection


def _has_news(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read: its end, or bytes that nobody asked for."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _close_all(stack: "deque[http.client.HTTPConnection]") -> None:
    while stack:
        stack.pop().close()
