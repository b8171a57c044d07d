"""Conditional and partial requests (RFC 9110, sections 13 and 14): what of a body is asked for, if anything.

One range of bytes at a time. What a `Range` says that is no such range is refused, not guessed at.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

_RANGE = re.compile(r"(\d{0,19})-(\d{0,19})", re.ASCII)


class Asked(NamedTuple):
    """Bytes `first` to `end` of a body, under status 200 or 206; or nothing of it, under 304."""

    status: Literal[200, 206, 304]
    first: int
    end: int


class Refused(NamedTuple):
    """Why a `Range` cannot be served (416)."""

    message: str


def asked_for(method: str, headers: Mapping[str, str], etag: str, size: int) -> Asked | Refused:
    """Return what a request asks for of a body of `size` bytes whose strong ETag is `etag`, quotes and all.

    `headers` are looked up in lower case. `If-None-Match` comes before `Range`; that counts for GET
    only, and only where `If-Range`, if there is one, is that ETag.
    """
    if method in ("GET", "HEAD") and _matches(headers.get("if-none-match"), etag):
        return Asked(304, 0, 0)
    whole = Asked(200, 0, size)
    given = headers.get("range")
    if method != "GET" or given is None or headers.get("if-range", etag).strip() != etag:
        return whole
    unit, _, text = given.strip().partition("=")
    if unit.lower() != "bytes":
        return whole  # another unit must be ignored, section 14.2
    return _one_range(text, size)


def _one_range(text: str, size: int) -> Asked | Refused:
    if "," in text:
        return Refused(f"expected one range, got {text.count(',') + 1}")
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.group() == "-":
        return Refused(f"expected bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT, got {text[:40]!r}")
    first, last = found.groups()
    if not first:
        asked = Asked(206, max(0, size - int(last)), size)
    else:
        asked = Asked(206, int(first), min(size, int(last) + 1) if last else size)
    if last and first and int(first) > int(last):
        return Refused(f"expected a last byte from {first[:20]} on, got {last[:20]}")
    if asked.first >= asked.end:
        return Refused(f"expected bytes below {size}, got {text[:45]!r}")
    return asked


def _matches(given: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names `etag`: by weak comparison, as section 13.1.2 says."""
    if given is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in given.split(","))
    return given.strip() == "*" or etag in tags
