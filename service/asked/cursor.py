"""Where a page ends: an opaque text that holds the version and the last item, so that the next page is exact.

A version never changes, so neither a commit nor a restart between two pages makes one skip or repeat.
"""

import base64
import re
from typing import NamedTuple

from schemas.problem import Problem
from service.errors import MalformedError

_WRITTEN = re.compile(r"([1-9][0-9]{0,7})\.([0-9a-f]{64})")


class Cursor(NamedTuple):
    """The last sample of a page of a version.

    >>> Cursor.read(str(Cursor(3, "0f" * 32))) == (3, "0f" * 32)
    True
    """

    version: int
    sample_id: str

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.version}.{self.sample_id}".encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """Read a cursor; raises `MalformedError` for what is none."""
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            found = _WRITTEN.fullmatch(plain.decode("ascii"))
        except ValueError:
            found = None
        if found is None:
            message = f"expected `next_cursor` of the page before, got {text[:40]!r}"
            problem = Problem(
                where="query.cursor", kind="cursor", message=message, repair="start anew without one"
            )
            raise MalformedError("not a cursor", [problem])
        return cls(int(found[1]), found[2])
