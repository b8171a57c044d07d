"""The list of an export's files, as `sha256sum --check` reads it, and whether they are as it says."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from datagen.store.failures import store_error
from schemas.problem import Problem

SUMS = "strata_files.sha256"
"""The list of what was written; `sha256sum --check strata_files.sha256` in the folder reads it all."""
_HEX = 64


def line_of(path: str, sha256: str) -> str:
    """Return a file's line.

    >>> line_of("d2t.pt", 64 * "0")[64:]
    '  d2t.pt\\n'
    """
    return f"{sha256}  {path}\n"


def read_list(file: Path) -> dict[str, str]:
    """Return the digest of each path, of lines that are whole; none where there is no list."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    pairs = (line.rstrip("\n").partition("  ") for line in lines if line.endswith("\n"))
    return {path: sha256 for sha256, _, path in pairs if path and len(sha256) == _HEX}


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damages(
    folder: Path,
    expected: Iterable[str],
    workers: int,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Iterator[Problem]:
    """Yield every file of a finished export that is gone or has changed, and what its list does not name.

    `expected` are paths that the list must name, whatever else it does; `on_progress` is told how many bytes
    were hashed. Raises `DoorError` where a file cannot be read.
    """
    file = folder / SUMS
    sums = read_list(file) if file.is_file() else {}
    for path in sorted(set(expected) - sums.keys()):
        yield Problem(where=str(file), kind="list", message=f"expected a line of {path}, got none")
    with ThreadPoolExecutor(workers, thread_name_prefix="export") as pool:
        done = 0
        for (path, sha256), (got, size_bytes) in zip(
            sums.items(), pool.map(lambda path: _hashed(folder / path), sums), strict=True
        ):
            done += size_bytes
            on_progress(done)
            if got != sha256:
                message = f"expected sha256 {sha256}, got {got or 'none'}"
                yield Problem(
                    where=str(folder / path), kind="missing" if got is None else "sha256", message=message
                )


def _hashed(path: Path) -> tuple[str | None, int]:
    """Return a file's digest and size, `None` of what is not there."""
    try:
        return sha256_of(path), path.stat().st_size
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None, 0
    except OSError as error:
        raise store_error(error, "read", str(path)) from error
