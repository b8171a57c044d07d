"""The small interface behind which a folder or a bucket lies; everything of a dataset goes through it.

Keys are relative, `/`-separated and made by the store itself, never by a user. Two implementations: `local`
(plain file descriptors, fsync, `os.link`) and `bucket` (obstore). A key that a call has returned from is
durable: it survives a power cut. Nothing but the `latest` hint is ever written twice.

Every method raises `NotFoundError` for a missing key and `DoorError` where rights, space or the network fail.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from schemas.problem import Problem

Buffer = bytes | bytearray | memoryview


class Entry(NamedTuple):
    """A key, its size, and when it was last written."""

    key: str
    size_bytes: int
    written_at: datetime


class KeyWriter(Protocol):
    """A key that is written as a stream, in O(buffer) memory; whole only once `close` has returned.

    In a folder its name is durable when `Door.settle` has returned for it too.
    """

    def write(self, data: Buffer) -> None:
        """Append; the buffer may be reused as soon as the call returns."""
        ...

    def close(self) -> None:
        """Finish: the key is complete, its bytes are durable."""
        ...

    def abort(self) -> None:
        """Give up: what was written is removed where that is possible, and never taken for complete."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, or abort when the block raised."""
        ...


class Door(Protocol):
    """A place that holds datasets: the root."""

    @property
    def url(self) -> str:
        """The root as a person would write it."""
        ...

    def read(self, key: str) -> bytes: ...

    def read_into(self, key: str, offset: int, buffer: NDArray[np.uint8]) -> None:
        """Fill `buffer` from `offset`; raises `CorruptError` when the key ends before it is full."""
        ...

    def size(self, key: str) -> int: ...

    def exists(self, key: str) -> bool: ...

    def create(self, key: str, data: bytes) -> None:
        """Write a whole key, durable, only if it is not there.

        Raises `AlreadyExistsError`: then, as after any other error, read it back to know whose it is.
        """
        ...

    def put_hint(self, key: str, data: bytes) -> None:
        """Write a small mutable key (`latest`); not durable, readers must not depend on it."""
        ...

    def open_writer(self, key: str) -> KeyWriter: ...

    def settle(self, keys: Sequence[str]) -> None:
        """Make the folders that hold `keys` durable, new parents included (nothing to do in a bucket)."""
        ...

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield every key under the folder `prefix`, sorted; for verify and gc only: readers never list.

        What a killed writer left behind is listed too (`keys.is_litter`): it can be named and removed.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove a key; for gc only. A missing key is no error."""
        ...

    def free_bytes(self) -> int | None:
        """Bytes that can still be written, or `None` where the place has no such number."""
        ...

    def write_problems(self, folder: str) -> list[Problem]:
        """Return why nothing can be written under `folder`; nothing is left there by asking."""
        ...

    def local_path(self, key: str) -> Path | None:
        """The file behind a key, or `None` in a bucket."""
        ...

    def signed_url(self, key: str, seconds: int) -> str | None:
        """A URL by which anybody may read a key for so long, or `None` where there are no such URLs."""
        ...

    def probe_create(self, folder: str) -> None:
        """Ask the place whether it refuses to create a key twice, by trying it under `folder`.

        Raises `DoorError` when it does not: two committers could then overwrite each other's versions.
        """
        ...

    def close(self) -> None: ...
