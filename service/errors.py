"""Every error of the service, and the one table from errors to HTTP statuses.

StrataError
 +-- ServiceError
      +-- SettingsError          settings are missing, unknown or contradict each other
      |    +-- KeyFileError      the file of API keys is missing, damaged, or has no such key
      +-- MalformedError         a parameter, a header or a body is not what it should be
      +-- UnauthorizedError      no key, or one that is unknown, expired or revoked
      +-- ForbiddenError         the key has no such scope, or no grant for the dataset
      +-- MismatchError          the schema or the wiring that a request means is not the dataset's
      +-- TooLargeError          the answer, or the request, is over a limit
      +-- TooSlowError           a request's body did not come in time
      +-- RangeError             a range or a window lies outside of what there is
      +-- TooManyError           too many requests or bytes in too short a time
      +-- NotReadyError          the service cannot read what it is to serve

Routes raise errors of ours and nothing else; `status_of` says what each is in HTTP.
"""

from collections.abc import Mapping, Sequence

from datagen.store.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    DoorError,
    GoneError,
    NotFoundError,
    RefusedError,
)
from schemas.errors import DatasetNameError, RecordError, SchemaError, StrataError
from schemas.problem import Problem


class ServiceError(StrataError):
    """The root of the service's errors."""


class SettingsError(ServiceError):
    """Settings are missing, unknown or contradict each other."""


class KeyFileError(SettingsError):
    """The file of API keys is missing or damaged, or has no such key."""


class MalformedError(ServiceError):
    """A parameter, a header or a body is not what it should be."""


class UnauthorizedError(ServiceError):
    """No key, or one that is unknown, expired or revoked."""


class ForbiddenError(ServiceError):
    """The key has no such scope, or no grant for the dataset."""


class MismatchError(ServiceError):
    """The schema or the wiring that a request means is not the dataset's."""


class TooLargeError(ServiceError):
    """The answer, or the request, is over a limit."""


class TooSlowError(ServiceError):
    """A request's body did not come in time."""


class RangeError(ServiceError):
    """A range or a window lies outside of what there is."""


class TooManyError(ServiceError):
    """Too many requests or bytes in too short a time; well again after `retry_after_seconds`."""

    def __init__(self, headline: str, problems: Sequence[Problem], retry_after_seconds: float) -> None:
        super().__init__(headline, problems)
        self.retry_after_seconds = retry_after_seconds


class NotReadyError(ServiceError):
    """The service cannot read what it is to serve."""


STATUS: Mapping[type[StrataError], int] = {
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    TooSlowError: 408,
    AlreadyExistsError: 409,
    ConflictError: 409,
    RefusedError: 409,
    MismatchError: 409,
    GoneError: 410,
    TooLargeError: 413,
    RangeError: 416,
    DatasetNameError: 422,
    MalformedError: 422,
    RecordError: 422,
    SchemaError: 422,
    TooManyError: 429,
    CorruptError: 500,
    DoorError: 503,
    NotReadyError: 503,
}
"""A kind that is not here has the status of the nearest one above it, and 500 where there is none."""


def status_of(kind: type[StrataError]) -> int:
    """Return the HTTP status of a kind of error.

    >>> status_of(NotFoundError), status_of(CorruptError), status_of(StrataError)
    (404, 500, 500)
    """
    found = (STATUS.get(above) for above in kind.__mro__ if issubclass(above, StrataError))
    return next((status for status in found if status is not None), 500)
