"""The shared folder of a vLLM server: a file a request and a lock beside it, read once and removed.

The server holds an exclusive flock on `FILE.lock` from before it answers until the safetensors file is whole
(`ExampleHiddenStatesConnector`). A path that leads out of the folder is refused: it came over the network,
and what it names is removed. Files that nobody asked for, left by requests that were given up, are swept by
the name that the requests of one engine share; those of an engine whose process was killed, by the next one.
"""

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from datagen.engines.errors import EngineError
from datagen.engines.owned_names import PREFIX, left_by_the_dead
from schemas.problem import Problem

LOCK = ".lock"
LOOK_EVERY = 0.002
"""Seconds between two looks at a lock; they grow to 50 times that."""


class Stored(NamedTuple):
    """What a server wrote of a request: `states` [T, slots, H] and the `token_ids` [T] that it ran."""

    states: Tensor
    token_ids: NDArray[np.int64]


class SharedFolder:
    """A folder that the server writes to, here and as the server names it."""

    def __init__(self, here: Path, at_server: str | None = None) -> None:
        self._here = here.expanduser().resolve()
        self._at_server = PurePosixPath(at_server) if at_server else None

    def take(self, path: str, timeout_seconds: float) -> Stored:
        """Wait until the file at the server's `path` is whole, read it, and remove it and its lock.

        They are removed after an error, too. Raises `EngineError` for a path outside of the folder, a file or
        lock that is not there, a lock that is held too long, and a file that is cut or is something else.
        """
        file = self.place_of(path)
        try:
            _wait(file.with_name(file.name + LOCK), timeout_seconds)
            return _read(file)
        finally:
            file.unlink(missing_ok=True)
            file.with_name(file.name + LOCK).unlink(missing_ok=True)

    def place_of(self, path: str) -> Path:
        """Return where the server's `path` lies here; raises `EngineError` for one outside of the folder."""
        told: PurePosixPath = PurePosixPath(path)
        root = PurePosixPath(self._here) if self._at_server is None else self._at_server
        if self._at_server is not None:
            inside = told.relative_to(root) if told.is_relative_to(root) else PurePosixPath("..")
            told = PurePosixPath(self._here / inside)
        # Links are followed before it is looked where the file lies; it may not be one itself.
        file = Path(told).parent.resolve() / told.name
        if file.is_relative_to(self._here) and file.suffix == ".safetensors" and not file.is_symlink():
            return file
        repair = "give the folder here as engine.openai.shared_folder, and its path there as server_folder"
        raise _refusal(path, f"expected a safetensors file in {root}, got another path", repair)

    def sweep(self, token: str) -> list[str]:
        """Remove the files whose names hold `token`, and return their names."""
        return _removed(path for path in self._here.rglob(f"*{token}*") if path.is_file())

    def sweep_the_dead(self) -> list[str]:
        """Remove what engines of processes of this host left which are no more, and return the names."""
        found = (path for path in self._here.rglob(f"*{PREFIX}-*") if path.is_file())
        return _removed(path for path in found if left_by_the_dead(path.name))


def _removed(paths: Iterable[Path]) -> list[str]:
    left = sorted(paths)
    for path in left:
        path.unlink(missing_ok=True)
    return [path.name for path in left if path.suffix != LOCK]


def _wait(lock: Path, timeout_seconds: float) -> None:
    try:
        handle = os.open(lock, os.O_RDONLY)
    except FileNotFoundError as error:
        repair = "is it the same folder, and does the server use_synchronization_lock (vLLM 0.22 and newer)"
        raise _refusal(
            str(lock), "expected the lock of a file in the shared folder, got none", repair
        ) from error
    deadline, pause = time.monotonic() + timeout_seconds, LOOK_EVERY
    try:
        while not _is_free(handle):
            if time.monotonic() > deadline:
                message = f"expected a whole file within {timeout_seconds:g} s, got a lock that is still held"
                raise _refusal(str(lock), message, "the server hangs, or its disk is slow: raise the timeout")
            time.sleep(pause)
            pause = min(50 * LOOK_EVERY, 1.5 * pause)
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: Path) -> Stored:
    try:
        found = load_file(file)
    except FileNotFoundError as error:
        message = "expected the states of a request, got no file behind a free lock"
        raise _refusal(str(file), message, "the server's log says why it was not written") from error
    except (SafetensorError, OSError, ValueError) as error:
        message = f"expected a whole safetensors file, got {error}"
        raise _refusal(str(file), message, "its disk may be full") from error
    states, ids = found.get("hidden_states"), found.get("token_ids")
    if states is None or ids is None or states.ndim != 3 or ids.ndim != 1:
        got = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in sorted(found.items())) or "nothing"
        raise _refusal(str(file), f"expected hidden_states [T, slots, H] and token_ids [T], got {got}")
    return Stored(states, ids.to(torch.int64).numpy())


def _refusal(where: str, message: str, repair: str | None = None) -> EngineError:
    return EngineError(
        "the states of a request cannot be taken",
        [Problem(where=where, kind="states", message=message, repair=repair)],
    )
