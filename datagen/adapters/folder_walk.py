"""Every file below a folder, links followed, and every folder there that cannot be looked into."""

import os
from collections.abc import Sequence
from pathlib import Path

from schemas.problem import Problem


def files_below(folder: Path) -> tuple[list[Path], Sequence[Problem]]:
    """Return what is no folder below one, pipes and broken links too: who reads them says what they are.

    A folder is looked into once, by whichever links it can be reached.
    """
    found: list[Path] = []
    problems: list[Problem] = []

    def unread(error: OSError) -> None:
        message = f"expected a folder that can be read, got: {os.strerror(error.errno or 0).lower()}"
        repair = "let it be read, or take it away: what lies in it would be missing"
        problems.append(Problem(where=str(error.filename), kind="folder", message=message, repair=repair))

    seen = {_identity(folder)}
    for below, folders, files in os.walk(folder, onerror=unread, followlinks=True):
        found += [Path(below, name) for name in files]
        fresh = []
        for name in sorted(folders):
            identity = _identity(Path(below, name))
            if identity not in seen:
                seen.add(identity)
                fresh.append(name)
        folders[:] = fresh
    return found, problems


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
