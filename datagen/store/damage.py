"""How changed, short or missing bytes are told: one problem that names the file, and what to do."""

from datagen.store.errors import CorruptError
from schemas.problem import Problem

RESTORE = "restore it from a copy, or drop the samples of its part and make them again"


def damage(where: str, kind: str, message: str, repair: str | None = RESTORE) -> Problem:
    """Return the problem of one damaged file; `message` says *expected X, got Y*."""
    return Problem(where=where, kind=kind, message=message, repair=repair)


def corrupt(where: str, kind: str, message: str, repair: str | None = RESTORE) -> CorruptError:
    """Return the error of one damaged file."""
    return CorruptError(f"{where} is damaged", [damage(where, kind, message, repair)])
