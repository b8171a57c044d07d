"""The large files of an export, written many at once, each hashed as it is written and synced as it ends."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from datagen.adapters.exports.format import PlannedFile
from datagen.errors import ExportError
from datagen.export.folder import ExportFolder
from datagen.store.failures import store_error
from datagen.store.synced import sync
from datagen.store.writing import write_all
from schemas.problem import Problem

_TOLD_EVERY_SECONDS = 0.25

Pieces = Callable[[PlannedFile], Iterator[memoryview | bytes]]


def write_files(
    folder: ExportFolder,
    files: Sequence[PlannedFile],
    pieces: Pieces,
    workers: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write what the folder does not hold yet, `workers` files at once; the first failure ends it.

    As many more may wait for the disk meanwhile, which needs no core. Files that are not whole when it ends
    are left as they are, and no more of them is written.
    """
    total = sum(file.size_bytes for file in files)
    for parent in {(folder.path / file.path).parent for file in files}:
        parent.mkdir(parents=True, exist_ok=True)
    waiting = iter(files)
    pending: set[Future[None]] = set()
    work = _Work(workers)
    with ThreadPoolExecutor(2 * workers, thread_name_prefix="export") as pool:
        try:
            while True:
                while len(pending) < 4 * workers and (file := next(waiting, None)) is not None:
                    pending.add(pool.submit(_write_file, folder, file, pieces, work))
                if not pending:
                    return
                finished, pending = wait(pending, _TOLD_EVERY_SECONDS, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                if on_progress is not None:
                    on_progress(work.done_bytes, total)
        except BaseException:
            work.end()
            pool.shutdown(cancel_futures=True)
            raise


class _EndedError(Exception):
    """Another file failed, or the whole was stopped: told to nobody."""


class _Work:
    """What the writers of one export share: how many are at work, how far they are, whether to go on."""

    def __init__(self, workers: int) -> None:
        self.at_work = threading.BoundedSemaphore(workers)
        self.done_bytes = 0
        self._has_ended = False
        self._lock = threading.Lock()

    def end(self) -> None:
        """Let every writer end before its next piece."""
        self._has_ended = True

    def add(self, size_bytes: int) -> None:
        """Count bytes that are there; raises `_EndedError` once the work is to end."""
        with self._lock:
            self.done_bytes += size_bytes
        if self._has_ended:
            raise _EndedError


def _write_file(folder: ExportFolder, file: PlannedFile, pieces: Pieces, work: _Work) -> None:
    """Write one file unless it is there; raises `ExportError` for any other size than was planned."""
    path = folder.path / file.path
    try:
        with work.at_work:
            work.add(0)
            if folder.holds(file.path):
                work.add(file.size_bytes)
                return
            size_bytes, sha256 = _write_pieces(path, file.size_bytes, pieces(file), work.add)
        # Here, while other files are read: all at the end would keep the cores waiting for the disk.
        sync(path)
    except OSError as error:
        raise store_error(error, "write", str(path)) from error
    if size_bytes != file.size_bytes:
        message = f"expected {file.size_bytes:,} bytes, got {size_bytes:,}"
        raise ExportError(
            "a file came out otherwise", [Problem(where=file.path, kind="size", message=message)]
        )
    folder.note(file.path, sha256)


def _write_pieces(
    path: Path, room: int, pieces: Iterator[memoryview | bytes], on_piece: Callable[[int], None]
) -> tuple[int, str]:
    """Write a file, and return its size and its sha256: each piece is hashed while it lies in the cache.

    `room` bytes are taken on the disk at once, which costs half of taking them write by write.
    """
    digest = hashlib.sha256()
    size_bytes = 0
    with open(path, "wb", buffering=0) as sink:
        if room:
            os.posix_fallocate(sink.fileno(), 0, room)
        for piece in pieces:
            digest.update(piece)
            written = write_all(sink.fileno(), piece)
            size_bytes += written
            on_piece(written)
    return size_bytes, digest.hexdigest()
