"""What an `OSError` means to a person: which folder, how many bytes free, what to do next."""

import errno
import os

from datagen.store.errors import DoorError, NotFoundError, StoreError
from schemas.problem import Problem

_REPAIRS = {
    errno.EACCES: "give this user the right to read and write that folder, or choose another root",
    errno.EPERM: "give this user the right to read and write that folder, or choose another root",
    errno.EROFS: "mount it writable, or choose another root",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "raise the machine's limit of open files (`fs.file-max`)",
    errno.EIO: "look at the machine's disk errors (`dmesg`), and copy what can be read elsewhere",
    errno.ESTALE: "the network file system lost the file: mount it again",
    errno.ENAMETOOLONG: "choose a root with a shorter path",
}
_SPACE = (errno.ENOSPC, errno.EDQUOT)
_MISSING = (errno.ENOENT, errno.ENOTDIR)


def free_bytes(path: str) -> int:
    """Return the bytes that this user can still write at `path`, or at its nearest folder that is there."""
    status = os.statvfs(nearest_folder(path))
    return status.f_bavail * status.f_frsize


def nearest_folder(path: str) -> str:
    """Return the folder of `path`, or the nearest above that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "."
    return path


def write_problems(path: str) -> list[Problem]:
    """Return why nothing can be made at `path`: nothing is written to find out, so rights are asked for.

    A quota, or a server that thinks otherwise, shows only at the first write.
    """
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there) or "."
    if not os.path.isdir(there):
        got = "a link to nothing" if os.path.islink(there) else "a file"
        message = f"expected a folder, got {got}"
        return [Problem(where=there, kind="place", message=message, repair="choose another root")]
    status = os.statvfs(there)
    if status.f_flag & os.ST_RDONLY:
        return list(store_error(OSError(errno.EROFS, os.strerror(errno.EROFS)), "write", there).problems)
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return list(store_error(OSError(errno.EACCES, os.strerror(errno.EACCES)), "write", there).problems)
    if status.f_files and not status.f_favail:
        message = "expected room for new files, got none: the file system's inodes are used up"
        return [
            Problem(where=there, kind="space", message=message, repair="remove files, or choose another root")
        ]
    return []


def store_error(error: OSError, doing: str, path: str) -> StoreError:
    """Return the store's error for `error`, met while `doing` (`write`, `read`, ...) `path`."""
    if error.errno in _MISSING:
        message = f"expected a file, got {os.strerror(error.errno or 0).lower()}"
        return NotFoundError(f"cannot {doing} {path}", [Problem(where=path, kind="missing", message=message)])
    if error.errno in _SPACE:
        what = "the quota is used up" if error.errno == errno.EDQUOT else "the disk is full"
        message = f"expected room to write, got {free_bytes(path):,} bytes free: {what}"
        repair = "free some space and run again: what is committed is whole, and the run goes on from there"
        problem = Problem(where=nearest_folder(path), kind="space", message=message, repair=repair)
        return DoorError(f"cannot {doing} {path}", [problem])
    where = nearest_folder(path) if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else path
    reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
    problem = Problem(
        where=where,
        kind="place",
        message=f"expected to {doing} here, got: {reason}",
        repair=_REPAIRS.get(error.errno or 0),
    )
    return DoorError(f"cannot {doing} {path}", [problem])
