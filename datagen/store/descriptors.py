"""A bounded cache of open file descriptors for reading.

A descriptor is closed only when nobody reads from it: closed under a reader, its number could by then mean
another file.
"""

import os
import threading
from collections import OrderedDict


class OpenFile:
    """A file open for reading at `fd`; closed when nobody holds it any longer."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Descriptors:
    """Up to `limit` open files by path, the longest unused given up first; safe for threads."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, path: str) -> OpenFile:
        """Return a file, for as long as it is held; raises `OSError` when `path` cannot be opened."""
        with self._lock:
            file = self._open.get(path)
            if file is None:
                file = self._open[path] = OpenFile(path)
                if len(self._open) > self._limit:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(path)
        return file

    def forget(self, path: str) -> None:
        """Drop what is held of `path`: the next reader opens it anew."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Drop all; a file that is being read from is closed by its last reader."""
        with self._lock:
            self._open.clear()
