"""Errors of trainers that read from Strata; those of reading itself are the client's and the store's.

StrataError
 +-- NotInstalledError   the packages of a trainer are not there
 +-- TrainerError        what a trainer is told, or finds prepared, is not what it is to take
"""

from schemas.errors import StrataError


class NotInstalledError(StrataError):
    """The packages of a trainer are not there; `problems` says what to install."""


class TrainerError(StrataError):
    """What a trainer is told, or finds prepared, is not what it is to take; nothing was trained."""

    exit_code = 1
