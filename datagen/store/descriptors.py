"""A bounded cache of open file descriptors for reading.

A descriptor is closed only when nobody reads from it: closed under a reader, its number could by then mean
another file.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class _Open:
    fd: int
    n_readers: int = 0


class Descriptors:
    """Up to `limit` descriptors by path, the longest unused given up first; safe for threads."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """Lend a descriptor open for reading; raises `OSError` when `path` cannot be opened."""
        with self._lock:
            held = self._open.get(path)
            if held is None:
                held = _Open(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                self._open[path] = held
            self._open.move_to_end(path)
            held.n_readers += 1
            self._evict()
        try:
            yield held.fd
        finally:
            with self._lock:
                held.n_readers -= 1
                if self._open.get(path) is not held and held.n_readers == 0:
                    os.close(held.fd)

    def forget(self, path: str) -> None:
        """Drop what is held of `path`: the next reader opens it anew."""
        with self._lock:
            self._drop(path)

    def close(self) -> None:
        """Close all; a descriptor that is being read from is closed by its last reader."""
        with self._lock:
            for path in list(self._open):
                self._drop(path)

    def _drop(self, path: str) -> None:
        held = self._open.pop(path, None)
        if held is not None and held.n_readers == 0:
            os.close(held.fd)

    def _evict(self) -> None:
        while len(self._open) > self._limit:
            self._drop(next(iter(self._open)))
