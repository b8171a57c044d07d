"""The error of somebody else's file: what is wrong with it, by name."""

import os
from pathlib import Path

from schemas.errors import StrataError
from schemas.problem import Problem


class ForeignFileError(StrataError):
    """A file of another library's cannot be read as hidden states; `problems` says why."""

    exit_code = 1


def refused(file: Path, kind: str, message: str, repair: str | None = None) -> ForeignFileError:
    """Return the error of one thing that is wrong with a file."""
    problem = Problem(where=str(file), kind=kind, message=message, repair=repair)
    return ForeignFileError("the file cannot be read", [problem])


def check_is_file(file: Path) -> None:
    """Raise `ForeignFileError` for a folder, or a pipe: that would be waited for without an end."""
    if os.path.exists(file) and not os.path.isfile(file):
        message = "expected a file, got a folder or a pipe of this name"
        raise refused(file, "file", message, "take it away, or give it another name")


def unreadable(file: Path, error: OSError) -> ForeignFileError:
    """Return the error of a file that the system does not let us read."""
    message = f"expected a file that can be read, got: {os.strerror(error.errno or 0).lower()}"
    return refused(file, "file", message, "look at its permissions, and at the disk that it lies on")
