"""How a bucket is reached: by which endpoint, with how much patience, and by which process.

A place that has not answered yet is given up after seconds, since a wrong endpoint is a person's slip; one
that has is waited for, minutes long, as obstore does. Threads of obstore do not survive a fork: a forked
child would wait for them for ever, so it is refused.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import from_url

from datagen.store.bucket_answers import door_error, failing, is_of_the_place

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

ENDPOINTS = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
PLACE_VARIABLES = (
    *ENDPOINTS,
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AZURE_STORAGE_ACCOUNT_NAME",
)
"""Environment variables that say which bucket a URL means; none of them is a secret."""

FIRST_SECONDS = 20
"""How long a place that has not answered yet is asked again; a request that hangs is one of 10 seconds."""


def place_settings() -> dict[str, str]:
    """Return what the environment says of which place a URL means, for processes of another one.

    Credentials are left out: they are each machine's own.
    """
    return {name: os.environ[name] for name in PLACE_VARIABLES if name in os.environ}


class Reach:
    """obstore's stores for one URL: one for the first answer, one for all that follow."""

    def __init__(self, url: str) -> None:
        """Open both; nothing is asked. Raises `DoorError` for a URL or an endpoint that is none."""
        client = _client(url)
        first: ClientConfig = {**client, "timeout": "10 seconds", "connect_timeout": "5 seconds"}
        hurried: RetryConfig = {"max_retries": 10, "retry_timeout": timedelta(seconds=FIRST_SECONDS)}
        with failing("open", url):
            try:
                self._patient: Any = from_url(url, client_options=client or None)
                # A store in memory is its own place: a second one would be another.
                is_far = not url.startswith("memory:")
                self._first: Any = (
                    from_url(url, client_options=first, retry_config=hurried) if is_far else None
                )
            except ValueError as error:
                raise door_error("open", url, str(error), "write s3://BUCKET/PREFIX") from error
        self._answered = not is_far

    @contextmanager
    def store(self, doing: str, where: str) -> Iterator[Any]:
        """Give the store to ask; what it raises comes out as the store's errors, with `where`."""
        _Processes.check(doing, where)
        with failing(doing, where):
            try:
                yield self._patient if self._answered else self._first
            except (BaseError, OSError) as error:
                self._answered = self._answered or is_of_the_place(error)
                raise
        self._answered = self._answered or doing != "sign"  # which asks nobody


class _Processes:
    """Which process obstore's threads run in: they are started by the first request, and die in a fork."""

    started = False
    forked = False

    @classmethod
    def check(cls, doing: str, where: str) -> None:
        """Note that a request is made; raises `DoorError` in a child that was forked after one."""
        if cls.forked:
            got = "a process that was forked after a bucket had been used in it, which never ends"
            repair = "start workers with spawn or forkserver, as DataLoader(multiprocessing_context='spawn')"
            raise door_error(doing, where, got, f"{repair}, or use no bucket before they are forked")
        cls.started = True

    @classmethod
    def after_fork(cls) -> None:
        cls.forked = cls.started


os.register_at_fork(after_in_child=_Processes.after_fork)


def _client(url: str) -> "ClientConfig":
    """Return what is said of the connection: plain HTTP is allowed where the endpoint is written so."""
    names = [name for name in ENDPOINTS if os.environ.get(name)]
    for name in names:
        if not os.environ[name].startswith(("http://", "https://")):
            got = f"{name}={os.environ[name]}"
            raise door_error("open", url, got, f"write {name}=https://HOST, or http://HOST:PORT")
    plain = any(os.environ[name].startswith("http://") for name in names)
    return {"allow_http": True} if plain else {}
