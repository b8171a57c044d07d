"""Release numbers and ranges of them, as far as consumers need: `>=0.5.12,<0.5.23`."""

import re
from typing import NamedTuple

_RELEASE = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,4})(?:\.?(?:post|dev|rc|a|b)[0-9]+)*(?:\+[\w.]+)?")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*(\S+)")


class Bound(NamedTuple):
    """One comparison of a range."""

    sign: str
    release: tuple[int, ...]

    def holds(self, release: tuple[int, ...]) -> bool:
        """Say whether a release lies on this side."""
        width = max(len(release), len(self.release))
        mine, other = _padded(release, width), _padded(self.release, width)
        return {
            ">=": mine >= other,
            "<=": mine <= other,
            "==": mine == other,
            "<": mine < other,
            ">": mine > other,
        }[self.sign]


def release_of(text: str) -> tuple[int, ...]:
    """Return a version's release numbers; raises `ValueError` for what is none.

    >>> release_of("0.5.23.post1")
    (0, 5, 23)
    """
    match = _RELEASE.fullmatch(text.strip()) if len(text) <= 100 else None
    if match is None:
        raise ValueError(f"expected a version as 0.5.23, got {text[:40]!r}")
    return tuple(int(number) for number in match.group(1).split("."))


def in_range(version: str, bounds: str) -> bool:
    """Say whether a version lies in a range; an empty range holds all. Raises `ValueError` for neither.

    >>> in_range("0.5.3", ">=0.5,<0.6"), in_range("0.6", ">=0.5,<0.6")
    (True, False)
    """
    release = release_of(version)
    return all(bound.holds(release) for bound in bounds_of(bounds))


def is_before(version: str, bounds: str) -> bool:
    """Say whether a version is older than all of a range.

    >>> is_before("0.4", ">=0.5,<0.6"), is_before("0.7", ">=0.5,<0.6")
    (True, False)
    """
    release = release_of(version)
    return any(
        bound.sign in (">=", ">", "==") and Bound("<", bound.release).holds(release)
        for bound in bounds_of(bounds)
    )


def newest(bounds: str) -> str | None:
    """Return the newest release that a range names; `None` where it has no upper end of its own.

    >>> newest(">=0.5.12,<=0.5.23"), newest(">=0.5,<0.6")
    ('0.5.23', None)
    """
    return _said(bounds, ("<=", "=="))


def oldest(bounds: str) -> str | None:
    """Return the oldest release that a range names.

    >>> oldest(">=0.5.12,<=0.5.23"), oldest("<0.4")
    ('0.5.12', None)
    """
    return _said(bounds, (">=", "=="))


def bounds_of(text: str) -> list[Bound]:
    """Return the comparisons of a range."""
    bounds = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        match = _BOUND.fullmatch(piece)
        if match is None:
            raise ValueError(f"expected a range as >=0.5.12,<0.6, got {text[:40]!r}")
        bounds.append(Bound(match.group(1), release_of(match.group(2))))
    return bounds


def _said(bounds: str, signs: tuple[str, ...]) -> str | None:
    found = [bound.release for bound in bounds_of(bounds) if bound.sign in signs]
    return ".".join(map(str, found[0])) if found else None


def _padded(release: tuple[int, ...], width: int) -> tuple[int, ...]:
    return release + (0,) * (width - len(release))
