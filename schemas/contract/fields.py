"""One object of a stranger's JSON, read field by field: the right type, or a problem and nothing.

Each field is judged once, however often it is asked for.
"""

import math
from collections.abc import Mapping

from schemas.contract.shown import shown
from schemas.problem import Problem

_LARGEST = 2**53
"""Sizes and thetas beyond this are nonsense, and no longer exact as a float."""


class Fields:
    """The fields of one object; `problems` is shared by all objects of a file."""

    def __init__(self, values: Mapping[str, object], path: str, problems: list[Problem]) -> None:
        self.values = values
        self.path = path
        self.problems = problems
        self._judged: set[str] = set()

    def section(self, key: str) -> "Fields":
        """Return the object under `key`, an empty one where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.expected(key, "an object", value)
        return Fields(value if isinstance(value, Mapping) else {}, self._where(key), self.problems)

    def flag(self, key: str) -> bool | None:
        """Return true or false; of another value what Python makes of it, as servers do, with a problem."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        truth = bool(value)
        self.expected(key, "true or false", value, f"; servers take it for {str(truth).lower()}")
        return truth

    def count(self, key: str) -> int | None:
        """Return a whole number of at least 1."""
        value = self.values.get(key)
        if value is None or (
            isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST
        ):
            return value
        self.expected(key, "a whole number of at least 1", value)
        return None

    def number(self, key: str) -> float | None:
        """Return a finite number above 0."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LARGEST:
            return float(value)
        self.expected(key, "a number above 0", value)
        return None

    def text(self, key: str) -> str | None:
        """Return a string."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        self.expected(key, "a string", value)
        return None

    def expected(self, key: str, what: str, got: object, then: str = "") -> None:
        """Add that `key` holds something else, once."""
        if key in self._judged:
            return
        self._judged.add(key)
        self.problems.append(
            Problem(
                where=self._where(key),
                kind="type",
                message=f"expected {what}, got {shown(got)}{then}",
                repair=f"correct {self._where(key)} in the draft's config.json",
            )
        )

    def note(self, key: str, message: str, repair: str | None = None) -> None:
        """Add what a person should know of `key`."""
        self.problems.append(
            Problem(where=self._where(key), kind="note", severity="note", message=message, repair=repair)
        )

    def _where(self, key: str) -> str:
        name = shown(key)[1:-1]
        return f"{self.path}.{name}" if self.path else name


def is_finite(value: float) -> bool:
    """Say whether a number of a JSON file can be kept: Python reads `NaN`, `Infinity` and huge integers."""
    return abs(value) <= _LARGEST and math.isfinite(value)
