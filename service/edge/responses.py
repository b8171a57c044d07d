"""Errors as their readers get them: `application/problem+json`, every problem as data (RFC 9457)."""

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from datagen.store.errors import CorruptError, StoreError
from schemas.errors import StrataError
from schemas.problem import Problem
from schemas.record import field_problems
from service.asked.versioned import MovedError
from service.errors import TooManyError, UnauthorizedError, status_of
from service.state import service_of
from service.wire.names import PROBLEM_TYPE

_LOG = logging.getLogger("strata.service")


class ProblemResponse(JSONResponse):
    """A refusal, or a failure."""

    media_type = PROBLEM_TYPE

    def render(self, content: object) -> bytes:
        """Return ASCII: what was sent may be quoted, and half a surrogate pair has no bytes in UTF-8."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def problem_response(
    request: Request,
    status: int,
    title: str,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """Return the body of an error: what is wrong in a line, and each problem as data."""
    content = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "instance": request.url.path,
        "request_id": getattr(request.state, "request_id", None),
        "problems": [problem.model_dump(mode="json", exclude_none=True) for problem in problems],
    }
    return ProblemResponse(content, status, headers)


def of_error(request: Request, error: Exception) -> Response:
    """Answer an error of ours."""
    assert isinstance(error, StrataError)
    headers = {}
    status, problems = status_of(type(error)), error.problems
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request_id = getattr(request.state, "request_id", None)
        _LOG.error("failed: %s", error, extra={"strata": {"request_id": request_id}})
    if isinstance(error, StoreError):
        problems = _from_the_root(service_of(request).settings.root, problems)
    if isinstance(error, CorruptError):
        service_of(request).metrics.checksum_failures.inc()
    if isinstance(error, TooManyError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    return problem_response(request, status, error.headline, problems, headers)


def _from_the_root(root: str, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems with paths from the root on: where it lies is for the log, not for who asks."""
    folder = root.removeprefix("file://")
    heads = (f"{os.path.abspath(folder)}/", f"{root.rstrip('/')}/", f"{folder.rstrip('/')}/")

    def told(text: str) -> str:
        for head in heads:
            text = text.replace(head, "")
        return text

    return tuple(
        problem.model_copy(update={"where": told(problem.where), "message": told(problem.message)})
        for problem in problems
    )


def of_validation(request: Request, error: Exception) -> Response:
    """Answer parameters, headers or a body that are not what they should be."""
    assert isinstance(error, RequestValidationError)
    return problem_response(request, 422, "the request is malformed", field_problems(error.errors()))


def of_http(request: Request, error: Exception) -> Response:
    """Answer what the router itself refuses: no such path, no such method."""
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase.lower()
    problems = []
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"expected an address of this service, got {request.url.path[:200]!r}"
        problems = [Problem(where="path", kind="path", message=message, repair="/docs lists them")]
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # What FastAPI says of a body that it cannot even parse; one that it can is 422 there as well.
        message = "expected a JSON body in UTF-8, got one that cannot be read"
        problem = Problem(where="body", kind="json", message=message, repair="see /docs for its form")
        return problem_response(request, 422, "the request is malformed", [problem])
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"expected {(error.headers or {}).get('Allow', 'another')}, got {request.method[:20]}"
        problems = [Problem(where="method", kind="method", message=message)]
    return problem_response(request, error.status_code, title, problems, error.headers)


def of_moved(_: Request, error: Exception) -> Response:
    """Send on to where the thing asked for is."""
    assert isinstance(error, MovedError)
    return RedirectResponse(error.location, 307)
