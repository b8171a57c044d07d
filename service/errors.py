"""Every error of the service.

StrataError
 +-- ServiceError
      +-- UnauthorizedError         who asks is not known: no key, or one that is unknown, expired or revoked
      +-- ForbiddenError            the key may not do that, or has no grant for the dataset
      +-- TooManyError              asked too often, or too much at once; says when to ask again
      +-- TooLargeError             a request or its response is over a limit
"""

from collections.abc import Sequence

from schemas.errors import StrataError
from schemas.problem import Problem


class ServiceError(StrataError):
    """The root of the service's errors."""


class UnauthorizedError(ServiceError):
    """Who asks is not known: no key was given, or one that is unknown, expired or revoked."""


class ForbiddenError(ServiceError):
    """The key may not do that, or has no grant for the dataset."""


class TooManyError(ServiceError):
    """Asked too often, or too much at once."""

    def __init__(self, headline: str, problems: Sequence[Problem], retry_after_seconds: int) -> None:
        super().__init__(headline, problems)
        self.retry_after_seconds = retry_after_seconds


class TooLargeError(ServiceError):
    """A request or its response is over a limit."""
