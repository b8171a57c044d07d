"""The list of checksums that an export leaves beside its files, and whether they are as it says.

No format has a checksum of its own: a bit that turned over in a state is still a state.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datagen.export.listed_files import SUMS, sha256_of
from schemas.problem import Problem


@dataclass(frozen=True)
class Sums:
    """Digests by absolute path; safe for threads, and each file is read once for it."""

    by_path: Mapping[Path, str] = field(default_factory=dict)
    _known: dict[Path, str] = field(default_factory=dict)
    _locks: dict[Path, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def problem(self, file: Path) -> Problem | None:
        """Return what is wrong with a file that the list names; `None` for others."""
        path = file.absolute()
        expected = self.by_path.get(path)
        if expected is None:
            return None
        with self._lock:
            lock = self._locks.setdefault(path, threading.Lock())
        with lock:
            got = self._known.get(path) or self._known.setdefault(path, sha256_of(path))
        if got == expected:
            return None
        message = f"expected sha256 {expected} as the export's list says, got {got}"
        repair = f"copy it again from the export; if it was changed on purpose, remove {SUMS}"
        return Problem(where=str(file), kind="sha256", message=message, repair=repair)


def read_sums(file: Path) -> Sums:
    """Read a list as `sha256sum` does; a line of another form is passed over."""
    lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    pairs = (line.split("  ", 1) for line in lines if len(line) > 66 and line[64:66] == "  ")
    return Sums({file.parent / path: digest for digest, path in pairs})
