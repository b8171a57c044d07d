"""The door of a request: does what it means fit the dataset's schema? Asked before a byte is read.

A request may say the schema's fingerprint and its wiring, in headers; the client always does. Verdicts are
kept, since a trainer says the same with each of its requests.
"""

from collections.abc import Sequence
from functools import lru_cache

from schemas.boundary import FINAL_NORMED
from schemas.errors import RecordError
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.request import read_wiring, request_problems
from schemas.schema import Schema
from service.errors import MismatchError
from service.metrics import Metrics
from service.wire.names import WIRING_HEADER

_KEPT = 1024


class Gate:
    """Judges requests, and counts those that it refuses; safe for threads."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._judged = lru_cache(_KEPT)(_judged)

    def check(
        self, schema: Schema, fingerprint: str | None, wiring: str | None, norm: FinalNorm | None = None
    ) -> None:
        """Let a request through, or raise; `norm` is the target's, where `needs_norm` says that it counts.

        Raises `MismatchError` with every problem when the schema or the wiring is another, and `RecordError`
        when the wiring is none.
        """
        if fingerprint is None and wiring is None:
            return
        problems = self._judged(schema, fingerprint, wiring, norm)
        if any(problem.severity == "error" for problem in problems):
            self._metrics.refused_wirings.inc()
            raise MismatchError("the request does not fit the dataset", problems)


def needs_norm(schema: Schema, wiring: str | None) -> bool:
    """Say whether a wiring may name what is made by the target's final norm, and is not stored."""
    return wiring is not None and FINAL_NORMED in wiring and FINAL_NORMED not in schema.names


def _judged(
    schema: Schema, fingerprint: str | None, wiring: str | None, norm: FinalNorm | None
) -> Sequence[Problem]:
    asked = None
    if wiring is not None:
        try:
            asked = read_wiring(wiring.encode("latin-1", "replace"), schema.target, WIRING_HEADER)
        except RecordError as error:
            others = request_problems(schema, fingerprint=fingerprint)
            raise RecordError(error.headline, [*others, *error.problems]) from error
    return request_problems(schema, fingerprint=fingerprint, wiring=asked, norm=norm)
