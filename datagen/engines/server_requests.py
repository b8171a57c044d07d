"""Asks a vLLM server over HTTP: what may be tried again is, with growing pauses; what cannot is told at once.

Tried again are a connection that fails, an answer that does not come in time, and the statuses of a server
that is busy, or whose front is (408, 429, 500, 502, 503, 504). Each try goes by a name of its own, since a
try that was given up may still leave a file.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from datagen.engines.errors import EngineError
from datagen.engines.settings import OpenaiSettings
from schemas.problem import Problem

AGAIN = frozenset({408, 429, 500, 502, 503, 504})
LONGEST_PAUSE = 30.0
SAID = 300
"""Characters of what a server says that are shown."""


class Requests:
    """One server. May be used from several threads."""

    def __init__(self, settings: OpenaiSettings, pause: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._pause = pause
        key = os.environ.get(settings.api_key_variable)
        self._client = httpx.Client(
            base_url=settings.base_url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.timeout_seconds, connect=min(10.0, settings.timeout_seconds)),
            limits=httpx.Limits(max_connections=settings.concurrency + 1),
            # A proxy of the environment is for the world, and a server of states stands beside the run.
            trust_env=False,
        )

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at `path`; raises `EngineError` naming what is there instead."""
        return self._answer("GET", path, lambda _attempt: {})

    def complete(self, body: Mapping[str, object], name: str) -> dict[str, Any]:
        """Return the answer to a completion that goes by `name`.

        Raises `EngineError` once the tries are used up, or at once for what the server refuses.
        """

        def sent(attempt: int) -> dict[str, Any]:
            request_id = f"{name}-{attempt}"
            return {"json": {**body, "request_id": request_id}, "headers": {"X-Request-Id": request_id}}

        return self._answer("POST", "/v1/completions", sent)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answer(self, method: str, path: str, sent: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
        tries = self._settings.retries + 1
        got = ""
        for attempt in range(tries):
            wait = 0.0
            try:
                response = self._client.request(method, path, **sent(attempt))
            except httpx.TransportError as error:
                got = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if response.is_success:
                    return self._object(response, path)
                got = f"{response.status_code}: {_said(response)}"
                if response.status_code not in AGAIN:
                    raise self._refusal(path, got)
                wait = _asked_to_wait(response)
            if attempt + 1 < tries:
                self._pause(min(LONGEST_PAUSE, max(wait, self._settings.backoff_seconds * 2**attempt)))
        raise self._refusal(path, f"{got} ({tries} tries)")

    def _object(self, response: httpx.Response, path: str) -> dict[str, Any]:
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._refusal(path, f"no JSON object: {_said(response)}")
        return found

    def _refusal(self, path: str, got: str) -> EngineError:
        where = f"{self._settings.base_url.rstrip('/')}{path}"
        message = f"expected an answer, got {got}"
        return EngineError(
            "the server does not answer as it should", [Problem(where=where, kind="server", message=message)]
        )


def _said(response: httpx.Response) -> str:
    text = " ".join(response.text.split())
    return text[:SAID] or response.reason_phrase


def _asked_to_wait(response: httpx.Response) -> float:
    """Return the seconds of `Retry-After`; dates are not read."""
    told = response.headers.get("retry-after", "")
    return float(told) if told.isdigit() else 0.0
