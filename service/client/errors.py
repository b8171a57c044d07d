"""Every error of the client.

StrataError
 +-- ClientError                    the root of the client's errors
      +-- UnreachableError          no connection, or one that broke or fell silent more often than is retried
      +-- ProtocolError             an answer departs from HTTP or from the wire format
      +-- ChecksumError             bytes are, twice, not those of their checksum: names the tensor
      +-- DamagedError              direct mode: a file of a part is gone, short or changed: names the part
      +-- StreamError               a stream's settings do not go together, or not with the samples
      |    +-- StateError           a state to go on from is another stream's, or none
      +-- AnsweredError             the service answered with an error; its problems are carried unchanged
           +-- DeniedError          401, 403: no key, an expired one, or one without the scope or the grant
           +-- NotFoundError        404, 410: no such dataset, version or sample, or none any more
           +-- RefusedError         409: the dataset does not have what the wiring or the fingerprint asks for
           +-- InvalidError         400, 413, 416, 422: the request asks for what cannot be
           +-- LimitError           429: over a limit; `retry_after_seconds` says when to come again
           +-- FaultError           5xx: the service found damage, or cannot read its storage
"""

from collections.abc import Sequence

from schemas.errors import StrataError
from schemas.problem import Problem


class ClientError(StrataError):
    """The root of the client's errors."""


class UnreachableError(ClientError):
    """The service cannot be reached, or connections to it broke more often than is retried."""


class ProtocolError(ClientError):
    """An answer departs from HTTP or from the wire format: nothing of it is used."""


class ChecksumError(ClientError):
    """Bytes are not those that their checksum was taken of, also when they were asked for again."""

    exit_code = 1


class DamagedError(ClientError):
    """A file that a location names is gone, short or changed."""

    exit_code = 1


class StreamError(ClientError):
    """A stream cannot be had as it was asked for; `problems` names every setting that stands in the way."""


class StateError(StreamError):
    """A state that a stream was to go on from is another stream's; `problems` names every difference."""


class AnsweredError(ClientError):
    """The service answered with an error: `status`, `request_id` for its log, and every problem it named."""

    def __init__(
        self,
        headline: str,
        problems: Sequence[Problem] = (),
        *,
        status: int = 0,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(headline, problems)
        self.status = status
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross processes (DataLoader workers) by their positional arguments alone.
        return type(self), (self.headline, self.problems), self.__dict__


class DeniedError(AnsweredError):
    """No key, an expired one, or one without the scope or the grant."""


class NotFoundError(AnsweredError):
    """No such dataset, version or sample, or none any more."""


class RefusedError(AnsweredError):
    """The dataset does not have what the wiring or the fingerprint asks for; `problems` names all of it."""

    exit_code = 1


class InvalidError(AnsweredError):
    """The request asks for what cannot be: an unknown tensor, a window outside of the sample, too much."""


class LimitError(AnsweredError):
    """Over a limit of requests or bytes, still after the retries."""


class FaultError(AnsweredError):
    """The service found damage, or cannot read its storage."""

    exit_code = 1


_BY_STATUS: dict[int, type[AnsweredError]] = {
    400: InvalidError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: RefusedError,
    410: NotFoundError,
    413: InvalidError,
    416: InvalidError,
    422: InvalidError,
    429: LimitError,
}


def error_of(status: int) -> type[AnsweredError]:
    """Return the error that a status stands for."""
    return _BY_STATUS.get(status, FaultError if status >= 500 else AnsweredError)
