"""Every request: its id, its line in the log, its count; and the one place where what nobody foresaw ends.

Pure ASGI, so that a body passes through piece by piece. A line is a JSON object on standard error.
"""

import json
import logging
import re
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from datagen.store.errors import CorruptError
from schemas.errors import StrataError
from service.edge.responses import problem_response
from service.metrics import Metrics
from service.wire.names import REQUEST_ID_HEADER

_LOG = logging.getLogger("strata.service")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADER = REQUEST_ID_HEADER.lower().encode()
UNMATCHED = "(none)"


class RequestLog:
    """The middleware around everything."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, _request_id(scope))
        scope.setdefault("state", {})["request_id"] = answer.request_id
        began = time.perf_counter()
        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, answer.send)
            except Exception as error:  # noqa: BLE001 - told in full, and answered
                await self._failed(error, scope, answer)
            finally:
                self._told(scope, answer, time.perf_counter() - began)

    async def _failed(self, error: Exception, scope: Scope, answer: "_Answer") -> None:
        """Answer what was not foreseen; a body that has begun is broken off, so that it never looks whole."""
        cause = _cause(error)
        if isinstance(cause, CorruptError) and answer.status is not None:
            self._metrics.checksum_failures.inc()
        _LOG.error(
            "failed: %s", cause, exc_info=None if isinstance(cause, StrataError) else error,
            extra={"strata": {"request_id": answer.request_id, "path": scope["path"]}},
        )  # fmt: skip
        if answer.status is None:
            request = Request(scope)
            said = "the service failed, and says no more here: its log has this request_id"
            await problem_response(request, 500, said)(scope, _nothing_more, answer.send)

    def _told(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        status = answer.status if answer.status is not None else 499
        self._metrics.requests.labels(_label(scope["method"]), route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        self._metrics.sent_bytes.labels(route).inc(answer.n_bytes)
        if not answer.complete:
            self._metrics.aborted.labels("unfinished").inc()
        caller = scope["state"].get("caller")
        told = {
            "request_id": answer.request_id,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "bytes": answer.n_bytes,
            "complete": answer.complete,
            "seconds": round(seconds, 6),
            "client": (scope.get("client") or ("",))[0],
            "caller": getattr(caller, "key_id", None) or getattr(caller, "name", None),
        }
        _LOG.info("request", extra={"strata": told})


class _Answer:
    """What was sent of one answer."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.status: int | None = None
        self.n_bytes = 0
        self.complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (_HEADER, self.request_id.encode())]
            message = {**message, "headers": headers}
        await self._send(message)
        if message["type"] == "http.response.body":
            self.n_bytes += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


def _label(method: str) -> str:
    """Return a method as a label; whoever makes one up makes no new series."""
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "(other)"


def _request_id(scope: Scope) -> str:
    """Return the caller's own id where it is a plain one, else a new one."""
    for name, value in scope["headers"]:
        if name == _HEADER and _ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return uuid.uuid4().hex


def _cause(error: BaseException) -> BaseException:
    """Return the error of ours that was behind, if any: it was raised when the answer had begun already."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, StrataError):
            return at
        at = at.__cause__
    return error


class JsonLines(logging.Formatter):
    """A record as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, who says it, what, and what a request adds."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "strata", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_config(level: str) -> dict[str, Any]:
    """Return the logging of a process of the service, as `logging.config.dictConfig` takes it."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": JsonLines}},
        "handlers": {
            "err": {"class": "logging.StreamHandler", "formatter": "lines", "stream": "ext://sys.stderr"}
        },
        "root": {"handlers": ["err"], "level": "WARNING"},
        "loggers": {
            "strata": {"level": level.upper()},
            "uvicorn": {"level": "WARNING"},
        },
    }
