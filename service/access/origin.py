"""Whether a request without a key comes from where it may: browsers carry other sites' requests to loopback.

A page anywhere can make its reader's browser ask `127.0.0.1`. Under another name of that address (DNS
rebinding) it could read the answers, so `Host` must be a name of loopback; without, it can still write
blindly, so a write whose `Origin` is another site is refused. A key travels in a header that no browser adds
by itself: with one, neither matters.
"""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from schemas.problem import Problem

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_loopback(name: str) -> bool:
    """Say whether a host's name or address can only be this machine.

    >>> [is_loopback(name) for name in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "localhost.evil.example")]
    [True, True, True, False, False]
    """
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str | None:
    """Return the host of `HOST[:PORT]`, without the brackets of IPv6, or None where it is not written so.

    >>> host_of("[::1]:8350"), host_of("localhost"), host_of("a@localhost"), host_of("[::1")
    ('::1', 'localhost', None, None)
    """
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname if parts.netloc == authority and "@" not in authority else None


def host_problems(hosts: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with a request's `Host` headers where only names of loopback will do."""
    name = host_of(hosts[0]) if len(hosts) == 1 else None
    if name is None or not is_loopback(name):
        yield Problem(
            where="header.host",
            kind="host",
            message=f"expected a name of loopback, got {', '.join(map(repr, hosts)) or 'none'}",
            repair="ask http://127.0.0.1, or give the service keys (`strata serve --keys`)",
        )


def origin_problems(method: str, hosts: list[str], origins: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with the `Origin` of a request; only browsers send one."""
    if method in _SAFE_METHODS or not origins:
        return
    authorities = {_authority(origin) for origin in origins}
    if authorities != set(hosts):
        yield Problem(
            where="header.origin",
            kind="origin",
            message=f"expected the service's own site, got {', '.join(map(repr, origins))}",
            repair="give the service keys, and send one as `Authorization: Bearer`",
        )


def _authority(origin: str) -> str | None:
    """Return the `HOST[:PORT]` of an origin, or None where it has none (`null`)."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
