"""What a bucket answers when it refuses or fails, in words that say what to do: obstore's go on for pages.

A server's own code and message are kept (`403 Forbidden: AccessDenied, Access Denied`), and so is the reason
why none was reached, which obstore tells only in the debug form of its error.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, UnauthenticatedError

from datagen.store.errors import DoorError, NotFoundError, StoreError
from schemas.problem import Problem

BUCKET_REPAIR = "make the bucket first, or check its name and the endpoint"
KEYS_REPAIR = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where there is one): profiles in "
    "~/.aws are not read, but `aws configure export-credentials --format env` prints them so"
)
REACH_REPAIR = "check the network, the endpoint (AWS_ENDPOINT_URL) and the region, and run again"
RIGHTS_REPAIR = "check the credentials and the bucket's policy (AWS_*, GOOGLE_* or AZURE_* variables)"
_LONGEST = 300
_NOBODY = "no credentials"
_METADATA = ("http://169.254.169.254/", "http://169.254.170.2/", "http://metadata.google.internal/")
"""Who is asked for credentials where none are given: a cloud's machine itself."""
_STATUS = re.compile(r"non-2xx status code: (\d{3}[^:]*): ?(.*)", re.DOTALL)
_REASONS = (
    (re.compile(r'"(failed to lookup address[^"]*)"'), r"\1"),
    (re.compile(r'kind: ConnectionRefused,\s+message: "([^"]*)"'), r"\1"),
    (re.compile(r"source: TimedOut|kind: TimedOut|kind: Timeout"), "no answer in time"),
    (re.compile(r"kind: InvalidData"), "no TLS there: write the endpoint with http://, if that is meant"),
    (re.compile(r'message: "([^"]*)"'), r"\1"),
)


@contextmanager
def failing(doing: str, where: str) -> Iterator[None]:
    """Turn what obstore raises into the store's errors, with `where` and what to do."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error) or doing not in ("read", "delete"):
            raise door_error(doing, where, "no such bucket", BUCKET_REPAIR) from error
        problem = Problem(where=where, kind="missing", message="expected a key, got none")
        raise NotFoundError(f"cannot {doing} {where}", [problem]) from error
    except (BaseError, OSError) as error:
        raise door_error(doing, where, *answer(error)) from error


def door_error(doing: str, where: str, got: str, repair: str) -> DoorError:
    """Return the error of a place that cannot be read or written."""
    message = f"expected to {doing} here, got: {got}"
    problem = Problem(where=where, kind="place", message=message, repair=repair)
    return DoorError(f"cannot {doing} {where}", [problem])


def is_of_the_place(error: Exception) -> bool:
    """Say whether the place itself answered, be it to refuse: not so where it, or a key, was not reached."""
    if any(address in str(error) for address in _METADATA):
        return False
    return not isinstance(error, GenericError) or bool(_STATUS.search(str(error)))


def answer(error: Exception) -> tuple[str, str]:
    """Return what came in the place of a good answer, and what to do about it."""
    text, _, debug = str(error).partition("\n\nDebug source")
    asked_for_keys = any(address in text for address in _METADATA)
    if found := _STATUS.search(text):
        status, body = found.groups()
        said = f"{status}: {_said(body)}" if body.strip() else status
    else:
        said = _reason(debug) or " ".join(text.split())[:_LONGEST]
        said = f"{said} ({_asked(text)})" if _asked(text) not in said else said
    if asked_for_keys:
        return f"{_NOBODY}, and none from this machine ({said})", KEYS_REPAIR
    # A bulk delete that is refused key by key is an error of no kind of its own.
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
    refused = refused or "Access Denied" in said
    return said, RIGHTS_REPAIR if refused else REACH_REPAIR


def _asked(text: str) -> str:
    """Return what was asked, of `Error performing GET http://... in 3.2s, after 10 retries`."""
    found = re.search(r"performing (\w+ \S+) in ([\d.]+\w+)(, after \d+ retries)?", text)
    return f"{found[1]}{found[3] or ''}" if found else ""


def _reason(debug: str) -> str:
    for pattern, words in _REASONS:
        if found := pattern.search(debug):
            return found.expand(words)
    return ""


def _said(body: str) -> str:
    """Return the code and the message of a server's answer, which is XML for most."""
    told = [re.search(f"<{tag}>([^<]*)</{tag}>", body) for tag in ("Code", "Message")]
    return ", ".join(found[1] for found in told if found) or " ".join(body.split())[:_LONGEST]
