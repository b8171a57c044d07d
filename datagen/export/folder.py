"""A folder of files that is there whole or not at all, and can be gone on with where it was stopped.

It is made under a hidden name beside its place and renamed last. The list of what was written is its journal:
a line is added when a file is whole, in the form that `sha256sum --check` reads. Who goes on hashes again
what the list says, and keeps what is equal; nothing else that lies there is trusted, nor is a folder in its
place before all of it was hashed again.
"""

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from datagen.adapters.exports.format import PlannedFile
from datagen.errors import ConfigError, ExportError, SpaceError
from datagen.export.identity import differences
from datagen.export.listed_files import SUMS, damages, line_of, read_list, sha256_of
from datagen.store.failures import free_bytes, nearest_folder, store_error, write_problems
from datagen.store.synced import sync, sync_all
from schemas.card import CARD_FILE, Card
from schemas.problem import Problem

IDENTITY = "strata_export.json"


class Written(NamedTuple):
    """An export that is whole: where, how many files and bytes, and how many of them this call wrote."""

    path: Path
    n_files: int
    size_bytes: int
    n_kept: int
    was_there: bool


class Left(NamedTuple):
    """What a call that ended too early leaves for the next one."""

    path: Path
    n_whole: int
    n_files: int


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell what the system says while `path` is written as an error of ours, with the file that it was at."""
    try:
        yield
    except OSError as error:
        raise store_error(error, "write", str(error.filename or path)) from error


class ExportFolder:
    """The folder at `place`, to be entered; `identity` says what must be equal to go on with one.

    `files` are the large ones, `room_bytes` the size of all. Entering raises what `look` does, `ConfigError`
    where one is being written at this moment, and `DoorError` where nothing can be written.
    """

    def __init__(self, place: Path, identity: bytes, files: Sequence[PlannedFile], room_bytes: int) -> None:
        # Behind links: a folder cannot be put in the place of one, and beside one may be another disk.
        self.place = Path(os.path.realpath(place))
        self.path = self.place.parent / f".{self.place.name}.partial"
        self.is_whole = False
        self.files = files
        self._room_bytes = room_bytes
        self._identity = identity
        self._sums: dict[str, str] = {}
        self._kept: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._fd = -1

    def __enter__(self) -> Self:
        self.is_whole = self.look()
        if self.is_whole:
            return self
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with writing(self.path):
                self._begin()
        except BlockingIOError as error:
            os.close(self._fd)
            said = "no other export of this name at work, got one"
            raise _elsewhere(self.path, said, repair="wait for it, or give another --out") from error
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def look(self) -> bool:
        """Say whether this very export is in its place; writes nothing.

        Where it is not, and could not be put there, this raises: `ConfigError` where something else lies
        there or another export was begun there, `SpaceError` where nothing can be written or the disk is too
        small.
        """
        with writing(self.place):
            if self._found_whole():
                return True
            if problems := write_problems(str(self.path)):
                raise SpaceError(f"cannot write {self.place}", problems)
            noted = self.path / IDENTITY
            if noted.is_file() and noted.read_bytes() != self._identity:
                raise self._another(noted, "what is left of this very export, got another one's")
            self._check_space()
        return False

    def left(self) -> Left:
        """Return what the next call finds whole, by the list; it hashes it again."""
        return Left(self.path, sum(file.path in self._sums for file in self.files), len(self.files))

    def holds(self, path: str) -> bool:
        """Say whether an earlier call wrote this file whole: what it says of it is hashed again."""
        noted = self._sums.get(path)
        if noted is None:
            return False
        try:
            same = sha256_of(self.path / path) == noted
        except FileNotFoundError:
            same = False
        with self._lock:
            if same:
                self._kept |= {path}
            else:
                del self._sums[path]
        return same

    def note(self, path: str, sha256: str) -> None:
        """Add a file that is whole to the list."""
        file = self.path / SUMS
        with self._lock:
            with writing(file), open(file, "a", encoding="utf-8") as journal:
                journal.write(line_of(path, sha256))
            self._sums[path] = sha256

    def put(self, path: str, data: bytes) -> None:
        """Write a small file, over what lies there."""
        with writing(self.path / path):
            (self.path / path).write_bytes(data)

    def finish(self, card: Card, beside: Sequence[str]) -> None:
        """Hash the small files, write the card and the list, sync all, and put the folder in its place.

        Raises `ConfigError` where other files lie in it, which a trainer may take for samples.
        """
        self.put(CARD_FILE, card.to_json())
        small = (*beside, CARD_FILE, IDENTITY)
        self._sweep()
        self._refuse_strangers({SUMS, *small, *(file.path for file in self.files)})
        for path in small:
            self._sums[path] = sha256_of(self.path / path)
        lines = [line_of(path, self._sums[path]) for path in sorted(self._sums)]
        self.put(SUMS, "".join(lines).encode())
        folders = {self.path, *((self.path / path).parent for path in self._sums)}
        with writing(self.place):
            sync_all([*(self.path / path for path in (*beside, CARD_FILE, IDENTITY, SUMS)), *folders])
            os.rename(self.path, self.place)
            sync(self.place.parent)

    def check(
        self,
        workers: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Hold the folder that is in its place against its list.

        Raises `ExportError` with every file that is gone or has changed.
        """
        total = sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())
        expected = [file.path for file in self.files] + [CARD_FILE, IDENTITY]
        found = list(
            damages(
                self.place,
                expected,
                workers,
                lambda done: None if on_progress is None else on_progress(done, total),
            )
        )
        if found:
            repair = (
                f"rename the folder to {self.path.name}: the same command then writes anew what is damaged, "
                "and keeps the rest"
            )
            told = [problem.model_copy(update={"repair": repair}) for problem in found]
            raise ExportError(f"the export in {self.place} is damaged", told)

    def written(self) -> Written:
        """Return what lies in the finished folder."""
        files = [path for path in self.place.rglob("*") if path.is_file()]
        size_bytes = sum(path.stat().st_size for path in files)
        return Written(self.place, len(files), size_bytes, len(self._kept), self.is_whole)

    def _found_whole(self) -> bool:
        """Say whether this very export lies there; raises `ConfigError` for anything else but emptiness."""
        if not self.place.exists():
            return False
        if self.place.is_dir() and not any(self.place.iterdir()):
            # Another folder takes its place, which these two cannot leave.
            if self.place.is_mount():
                raise _elsewhere(self.place, "a folder that can be replaced, got one where a disk is mounted")
            if self.place.samefile("."):
                raise _elsewhere(self.place, "a folder that can be replaced, got the one that you are in")
            return False
        found = self.place / IDENTITY
        if not found.is_file():
            what = "other files" if self.place.is_dir() else "a file"
            raise _elsewhere(self.place, f"no folder, or this very export, got {what}")
        if found.read_bytes() != self._identity:
            raise self._another(found, "no folder, or this very export, got another export")
        return True

    def _begin(self) -> None:
        if not os.path.samestat(os.fstat(self._fd), os.stat(self.path)):
            said = "no other export of this name at work, got one that ends"
            raise _elsewhere(self.path, said, repair="wait for it, or give another --out")
        noted = self.path / IDENTITY
        if not noted.is_file():
            # Nothing is trusted in a folder that does not say what it is.
            if strangers := [path.name for path in self.path.iterdir()]:
                raise _elsewhere(
                    self.path, f"an export that was begun, got {', '.join(sorted(strangers)[:3])}"
                )
            aside = self.path / f".{IDENTITY}"
            aside.write_bytes(self._identity)
            os.rename(aside, noted)
        elif noted.read_bytes() != self._identity:
            raise self._another(noted, "what is left of this very export, got another one's")
        self._read_journal()

    def _another(self, noted: Path, said: str) -> ConfigError:
        return _elsewhere(noted.parent, said, *differences(self._identity, noted.read_bytes()))

    def _read_journal(self) -> None:
        journal = self.path / SUMS
        self._sums = read_list(journal) if journal.is_file() else {}
        # What was torn by a kill must not run into the next line.
        journal.write_text(
            "".join(line_of(path, known) for path, known in self._sums.items()), encoding="utf-8"
        )

    def _check_space(self) -> None:
        block = os.statvfs(nearest_folder(str(self.path))).f_frsize
        sizes = [file.size_bytes for file in self.files]
        there = [path.stat().st_size for path in self.path.rglob("*") if path.is_file()]
        needed = _on_disk([*sizes, self._room_bytes - sum(sizes)], block) - _on_disk(there, block)
        free = free_bytes(str(self.path))
        if needed > free:
            message = f"expected {needed:,} bytes free, got {free:,}"
            repair = "free space, or give another --out"
            problem = Problem(where=str(self.place.parent), kind="space", message=message, repair=repair)
            raise SpaceError("there is no room for the export", [problem])

    def _refuse_strangers(self, ours: set[str]) -> None:
        there = {str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir()}
        if strangers := sorted(there - ours):
            told = ", ".join(strangers[:3]) + (f" and {len(strangers) - 3} more" if strangers[3:] else "")
            raise _elsewhere(self.path, f"only files of this export, got {told}")
        self._sums = {path: known for path, known in self._sums.items() if path in ours}

    def _sweep(self) -> None:
        """Remove what a killed call left and nobody lists."""
        for path in self.path.glob(".*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _on_disk(sizes: Sequence[int], block: int) -> int:
    """Return the bytes that files take: a file system gives whole blocks.

    >>> _on_disk([1, 4096, 5000], 4096)
    16384
    """
    return sum(-(-size // block) * block for size in sizes)


def _elsewhere(
    path: Path, said: str, *more: Problem, repair: str = "give another --out, or remove what lies there"
) -> ConfigError:
    problem = Problem(
        where=str(path),
        kind="place",
        message=f"expected {said}",
        repair=repair,
    )
    return ConfigError("the export cannot be put there", [problem, *more])
