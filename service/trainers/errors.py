"""Errors of trainers that read from Strata; those of reading itself are the client's and the store's.

StrataError
 +-- NotInstalledError     the packages of a trainer are not there
 +-- TrainerError          what a trainer is told, or finds prepared, is not what it is to take
 +-- VerifierError         the model that it takes the head and the norm from cannot be read
 +-- TrainingStoppedError  a signal ended the training before its end
"""

from schemas.errors import StrataError


class NotInstalledError(StrataError):
    """The packages of a trainer are not there; `problems` says what to install."""


class TrainerError(StrataError):
    """What a trainer is told, or finds prepared, is not what it is to take; nothing was trained."""

    exit_code = 1


class VerifierError(StrataError):
    """The model that a trainer takes the head and the norm from cannot be read; nothing was trained."""


class TrainingStoppedError(StrataError):
    """A signal ended the training before its end; what the trainer saved then lies where it says."""

    exit_code = 1
