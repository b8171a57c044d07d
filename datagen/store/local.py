"""The local door: a folder, by plain file descriptors, fsync and `os.link`.

`create` writes aside under a hidden name, syncs, and links the file to its name: a kill leaves litter
(`keys.is_litter`), never a torn key, and of two creators one is refused. Streams are written in place: their
folder is one attempt's own, and nobody takes it for a part before `part.json` is there.
"""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from datagen.store.descriptors import Descriptors
from datagen.store.door import Buffer, Entry
from datagen.store.errors import AlreadyExistsError, CorruptError, DoorError, NotFoundError
from datagen.store.failures import free_bytes, store_error, write_problems
from datagen.store.keys import checked_key, temporary_name
from datagen.store.writing import write_all
from schemas.problem import Problem

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_WRITE_BEHIND_BYTES = 16 * 2**20


class LocalDoor:
    """A folder that holds datasets; it is made by the first write. Pickles as its root."""

    def __init__(self, root: str | Path) -> None:
        self._url = str(root)
        self._root = os.path.abspath(root)
        self._above_keys = os.path.join(self._root, "")
        self._descriptors = Descriptors()
        self._settled: set[str] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._root,)

    def __repr__(self) -> str:
        return f"LocalDoor({self._url!r})"

    @property
    def url(self) -> str:
        """The root as it was given."""
        return self._url

    def read(self, key: str) -> bytes:
        path = self._path(key)
        with _failing("read", path), open(path, "rb") as file:
            return file.read()

    def read_into(self, key: str, offset: int, buffer: NDArray[np.uint8]) -> None:
        path = self._path(key)
        left, at = buffer.data, offset
        try:
            file = self._descriptors.open(path)
            while len(left):
                n_read = os.preadv(file.fd, [left], at)
                if n_read == 0:
                    raise _too_short(path, offset, len(buffer), at - offset)
                left, at = left[n_read:], at + n_read
        except OSError as error:
            raise store_error(error, "read", path) from error

    def size(self, key: str) -> int:
        path = self._path(key)
        with _failing("read", path):
            return os.stat(path).st_size

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except NotFoundError:
            return False
        return True

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        aside = os.path.join(os.path.dirname(path), temporary_name())
        with _failing("write", path):
            _write_synced(self._open_new(aside), aside, data)
            try:
                _link(aside, path)
            finally:
                os.unlink(aside)
            self._settle_folders([os.path.dirname(path)])

    def put_hint(self, key: str, data: bytes) -> None:
        path = self._path(key)
        aside = os.path.join(os.path.dirname(path), temporary_name())
        with _failing("write", path):
            with open(self._open_new(aside), "wb") as file:
                file.write(data)
            os.replace(aside, path)
        self._descriptors.forget(path)

    def open_writer(self, key: str) -> "LocalWriter":
        """Open a key for one stream; raises `AlreadyExistsError` when it is there."""
        path = self._path(key)
        with _failing("write", path):
            return LocalWriter(self._open_new(path), path)

    def settle(self, keys: Sequence[str]) -> None:
        folders = {os.path.dirname(self._path(key)) for key in keys}
        with _failing("sync", self._root):
            self._settle_folders(folders)

    def entries(self, prefix: str) -> Iterator[Entry]:
        base = self._path(prefix.rstrip("/")) if prefix else self._root
        with _failing("list", base):
            yield from (
                Entry(
                    os.path.relpath(path, self._root),
                    stat.st_size,
                    datetime.fromtimestamp(stat.st_mtime, UTC),
                )
                for path, stat in _files_under(base)
            )

    def delete(self, key: str) -> None:
        """Remove a key, and the folders that this leaves empty."""
        path = self._path(key)
        self._descriptors.forget(path)
        with _failing("delete", path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            folder = os.path.dirname(path)
            with suppress(FileNotFoundError), _suppress_not_empty():
                while folder != self._root:
                    os.rmdir(folder)
                    with self._lock:
                        self._settled.discard(folder)
                    folder = os.path.dirname(folder)

    def free_bytes(self) -> int | None:
        return free_bytes(self._root)

    def write_problems(self, folder: str) -> list[Problem]:
        return write_problems(self._path(folder))

    def local_path(self, key: str) -> Path | None:
        return Path(self._path(key))

    def signed_url(self, key: str, seconds: int) -> str | None:  # noqa: ARG002
        """A folder has no URLs."""
        return None

    def probe_create(self, folder: str) -> None:
        """Try to write under `folder`: a file system without hard links is refused here, not at a commit."""
        key = f"{folder}/{temporary_name()}"
        self.create(key, b"")
        self.delete(key)

    def close(self) -> None:
        self._descriptors.close()

    def _path(self, key: str) -> str:
        return self._above_keys + checked_key(key)

    def _open_new(self, path: str) -> int:
        folder = os.path.dirname(path)
        for _ in range(8):
            try:
                return os.open(path, _NEW_FILE, 0o644)
            except FileExistsError as error:
                raise _already_there(path) from error
            except FileNotFoundError:
                # The folder is new, or a gc has just removed it as empty: make it, and look again.
                os.makedirs(folder, exist_ok=True)
        return os.open(path, _NEW_FILE, 0o644)

    def _settle_folders(self, folders: Sequence[str] | set[str]) -> None:
        """Sync `folders`, and once every folder above whose entry this process has not yet made durable.

        Another process may have made a parent and not synced it, so who made it does not matter.
        """
        to_sync = set(folders)
        named: set[str] = set()
        with self._lock:
            for folder in folders:
                above = folder
                while above not in self._settled and above not in named:
                    named.add(above)
                    parent = os.path.dirname(above)
                    to_sync.add(parent)
                    if above == self._root:
                        break
                    above = parent
        for folder in sorted(to_sync, key=len, reverse=True):
            _sync_folder(folder, must=folder.startswith(self._root))
        with self._lock:
            self._settled |= named


class LocalWriter:
    """A file that is written as a stream."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._size = 0
        self._behind = 0

    def write(self, data: Buffer) -> None:
        """Append; raises `DoorError` where the disk is full."""
        with _failing("write", self._path):
            self._size += write_all(self._fd, data)
            if self._size - self._behind >= _WRITE_BEHIND_BYTES:
                # Starts writing these pages out and returns at once: the fsync at the end then finds little.
                os.posix_fadvise(self._fd, self._behind, self._size - self._behind, os.POSIX_FADV_DONTNEED)
                self._behind = self._size

    def close(self) -> None:
        """Sync the file and close it; `settle` makes its folder's entry durable."""
        if self._fd < 0:
            return
        with _failing("write", self._path):
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def abort(self) -> None:
        """Close and remove the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
        # Whoever aborts has an error to tell already; what stays is in no record, and gc removes it.
        with suppress(OSError):
            os.unlink(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


@contextmanager
def _failing(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error(error, doing, path) from error


@contextmanager
def _suppress_not_empty() -> Iterator[None]:
    """Let `os.rmdir` find a folder that still holds something."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            raise


def _write_synced(fd: int, path: str, data: bytes) -> None:
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
    except BaseException:
        os.unlink(path)
        raise


def _link(aside: str, path: str) -> None:
    try:
        os.link(aside, path)
    except FileExistsError as error:
        raise _already_there(path) from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        message = "expected a file system with hard links, got one that refuses `link`"
        repair = "choose a root on another file system: without links two writers cannot be told apart"
        problem = Problem(where=os.path.dirname(path), kind="place", message=message, repair=repair)
        raise DoorError(f"cannot write {path}", [problem]) from error


def _sync_folder(folder: str, *, must: bool) -> None:
    """Sync a folder; one above the root may be another user's, and unreadable (`must` is false)."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        if must:
            raise
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _files_under(base: str) -> list[tuple[str, os.stat_result]]:
    """Return path and facts of every file under `base`, sorted by path; a missing folder has none."""
    found: list[tuple[str, os.stat_result]] = []
    folders = [base]
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        found.append((entry.path, entry.stat(follow_symlinks=False)))
    return sorted(found)


def _already_there(path: str) -> AlreadyExistsError:
    message = "expected no such file yet, got one"
    return AlreadyExistsError(f"{path} exists", [Problem(where=path, kind="exists", message=message)])


def _too_short(path: str, offset: int, expected: int, got: int) -> CorruptError:
    message = f"expected {expected} bytes from byte {offset}, got {got}: the file is cut short"
    problem = Problem(where=path, kind="short", message=message, repair="restore it, or drop its part")
    return CorruptError(f"{path} is too short", [problem])
