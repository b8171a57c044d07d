"""The bucket door: S3, Google Cloud Storage or Azure, by obstore.

A key appears whole or not at all, and is durable when the call returns. Two creators of one key are told
apart by the bucket itself (create-if-absent), which some servers accept and ignore: `probe_create`
asks. Settings (endpoint, keys, region) come from the usual environment variables, as obstore reads them.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import obstore
from numpy.typing import NDArray
from obstore.exceptions import AlreadyExistsError as KeyIsThere
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import HTTPStore, LocalStore, MemoryStore

from datagen.store.bucket_answers import RIGHTS_REPAIR, answer, door_error, failing
from datagen.store.bucket_reach import Reach
from datagen.store.damage import corrupt
from datagen.store.door import Buffer, Entry
from datagen.store.errors import AlreadyExistsError, DoorError, NotFoundError, StoreError
from datagen.store.keys import checked_key, temporary_name
from schemas.problem import Problem

PIECE_BYTES = 8 * 2**20
"""One piece of an upload. S3 takes at most 10,000 a key, so a key holds up to 78 GiB."""
_PIECES_AT_ONCE = 4


class BucketDoor:
    """A bucket, or a prefix in one, that holds datasets. Pickles as its URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/") if not url.endswith("://") else url
        self._reach = Reach(url)

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._url,)

    def __repr__(self) -> str:
        return f"BucketDoor({self._url!r})"

    @property
    def url(self) -> str:
        """The root as it was given."""
        return self._url

    def read(self, key: str) -> bytes:
        with self._reach.store("read", self._where(key)) as store:
            return bytes(obstore.get(store, checked_key(key)).bytes())

    def read_into(self, key: str, offset: int, buffer: NDArray[np.uint8]) -> None:
        where = self._where(key)
        if len(buffer) == 0:
            return
        with self._reach.store("read", where) as store:
            try:
                data: Any = obstore.get_range(store, checked_key(key), start=offset, length=len(buffer))
            except BaseError as error:
                # Each server refuses a range that starts past the end in its own way: ask for the size.
                if self.size(key) < offset + len(buffer):
                    raise _too_short(where, offset, len(buffer), max(0, self.size(key) - offset)) from error
                raise
        if len(data) < len(buffer):
            raise _too_short(where, offset, len(buffer), len(data))
        buffer[:] = np.frombuffer(data, np.uint8)

    def size(self, key: str) -> int:
        with self._reach.store("read", self._where(key)) as store:
            return int(obstore.head(store, checked_key(key))["size"])

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except NotFoundError:
            return False
        return True

    def create(self, key: str, data: bytes) -> None:
        where = self._where(key)
        with self._reach.store("write", where) as store:
            try:
                obstore.put(store, checked_key(key), bytes(data), mode="create")
            except (KeyIsThere, PreconditionError) as error:
                raise _already_there(where) from error

    def put_hint(self, key: str, data: bytes) -> None:
        with self._reach.store("write", self._where(key)) as store:
            obstore.put(store, checked_key(key), bytes(data), use_multipart=False)

    def open_writer(self, key: str) -> "BucketWriter":
        """Open a key for one stream.

        Raises `AlreadyExistsError` when it is there by now; the bucket does not guard it later, so streams go
        only to keys that are one attempt's own.
        """
        if self.exists(key):
            raise _already_there(self._where(key))
        return BucketWriter(self, checked_key(key))

    def settle(self, keys: Sequence[str]) -> None:
        """Nothing to do: a bucket has no folders."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        folder = checked_key(prefix.rstrip("/")) if prefix else None
        with self._reach.store("list", self._where(prefix)) as store:
            found = [
                Entry(item["path"], item["size"], item["last_modified"])
                for page in obstore.list(store, folder)
                for item in page
            ]
        yield from sorted(found)

    def delete(self, key: str) -> None:
        with self._reach.store("delete", self._where(key)) as store, suppress(FileNotFoundError):
            obstore.delete(store, checked_key(key))

    def free_bytes(self) -> int | None:
        """A bucket has no such number."""
        return None

    def write_problems(self, folder: str) -> list[Problem]:
        """Try to create a key under `folder`, and remove it again: nobody else knows what a policy allows."""
        key = f"{folder}/{temporary_name()}"
        try:
            self.create(key, b"")
        except DoorError as error:
            return [problem.model_copy(update={"where": self._where(folder)}) for problem in error.problems]
        self._delete_if_allowed(key)
        return []

    def local_path(self, key: str) -> Path | None:  # noqa: ARG002
        """A bucket has no files."""
        return None

    def signed_url(self, key: str, seconds: int) -> str | None:
        with self._reach.store("sign", self._where(key)) as store:
            if isinstance(store, MemoryStore | LocalStore | HTTPStore):
                return None
            try:
                url = obstore.sign(store, "GET", checked_key(key), timedelta(seconds=seconds))
            except ValueError as error:
                raise door_error("sign", self._where(key), answer(error)[0], RIGHTS_REPAIR) from error
        return str(url)

    def close(self) -> None:
        """Connections are the library's; nothing is held here."""

    def probe_create(self, folder: str) -> None:
        """Try to create a key under `folder` twice; some servers accept a condition and ignore it."""
        key = f"{folder}/{temporary_name()}"
        self.create(key, b"first")
        try:
            self.create(key, b"second")
        except AlreadyExistsError:
            return
        finally:
            self._delete_if_allowed(key)
        raise door_error(
            "write",
            self._where(folder),
            "a second create of one key was accepted",
            "use a server with conditional writes (If-None-Match), or a folder as the root",
        )

    def _delete_if_allowed(self, key: str) -> None:
        """Remove what a question left; where a policy forbids that it stays, and no reader ever opens it."""
        with suppress(DoorError):
            self.delete(key)

    def _where(self, key: str) -> str:
        return f"{self._url}/{key}"


class BucketWriter:
    """A key that is uploaded in pieces while it is written.

    obstore's writer goes on reading a buffer after `write` has returned, so it is only ever given copies.
    """

    def __init__(self, door: BucketDoor, key: str) -> None:
        self._where = door._where(key)
        with door._reach.store("write", self._where) as store:
            self._upload = obstore.open_writer(
                store, key, buffer_size=PIECE_BYTES, max_concurrency=_PIECES_AT_ONCE
            )
        self._is_open = True

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        with failing("write", self._where):
            for start in range(0, len(view), PIECE_BYTES):
                self._upload.write(bytes(view[start : start + PIECE_BYTES]))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with failing("write", self._where):
                self._upload.close()

    def abort(self) -> None:
        """Give up: the pieces are dropped, and the key never appears (one that was closed stays)."""
        if self._is_open:
            self._is_open = False
            # The one way to abort that obstore has; whoever aborts has an error to tell already.
            with suppress(BaseError, OSError):
                self._upload.__exit__(RuntimeError, RuntimeError("aborted"), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _already_there(where: str) -> AlreadyExistsError:
    message = "expected no such key yet, got one"
    return AlreadyExistsError(f"{where} exists", [Problem(where=where, kind="exists", message=message)])


def _too_short(where: str, offset: int, expected: int, got: int) -> StoreError:
    return corrupt(
        where, "short", f"expected {expected} bytes from byte {offset}, got {got}: it is cut short"
    )
