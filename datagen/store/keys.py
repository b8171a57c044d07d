"""Keys: relative, `/`-separated, made by the store itself; the guard that nothing else becomes a path.

Kill leftovers of `create` are keys too, so that verify can name them and gc remove them: see `is_litter`.
"""

import uuid
from functools import lru_cache

from datagen.store.errors import DoorError
from schemas.problem import Problem

_LITTER = ".tmp-"
_FORBIDDEN = frozenset("\\\0\n\r")


@lru_cache(maxsize=4096)  # a reader asks for the same few files again and again, a block at a time
def checked_key(key: str) -> str:
    """Return `key`, or raise `DoorError`: a key is relative, without `.`, `..` and empty pieces.

    >>> checked_key("demo/versions/00000001.json")
    'demo/versions/00000001.json'
    """
    pieces = key.split("/")
    if not key or any(piece in ("", ".", "..") for piece in pieces) or _FORBIDDEN & set(key):
        message = f"expected a relative key without empty, `.` or `..` pieces, got {key!r}"
        raise DoorError("not a key", [Problem(where=repr(key), kind="key", message=message)])
    return key


def temporary_name() -> str:
    """Return a new name for a file that is written aside before it gets its own name."""
    return f"{_LITTER}{uuid.uuid4().hex}"


def is_litter(key: str) -> bool:
    """Say whether `key` is what a killed `create` left behind: no reader ever opens one.

    >>> is_litter("demo/versions/.tmp-00ff"), is_litter("demo/versions/00000001.json")
    (True, False)
    """
    return key.rsplit("/", 1)[-1].startswith(_LITTER)
