"""Which unit goes next, and what becomes of a unit whose worker died: pure, no cluster in sight.

A unit that was running when its worker died is tried again elsewhere; after `attempts` deaths it is halved,
and a single sample that has killed `attempts` workers is poison: given up, with the reason. Units that
merely waited at a dead worker go back unharmed.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from datagen.errors import RunFailedError
from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem

FAILURES_IN_A_ROW = 16
"""So many failures without one finished unit between them are a fault of the fleet, not of a sample."""


@dataclass(frozen=True)
class Poison:
    """A sample given up, and why."""

    prompt: Prompt
    detail: str


class Schedule:
    """The units still to be made."""

    def __init__(self, units: Iterable[Unit], attempts: int) -> None:
        self._waiting = deque(units)
        self._attempts = attempts
        self._failures: list[Problem] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self) -> Unit | None:
        """Return the unit to hand out, or `None` when none waits."""
        return self._waiting.popleft() if self._waiting else None

    def finished(self) -> None:
        """Note that a unit was made: what failed before it was no fault of the fleet."""
        self._failures.clear()

    def returned(self, unit: Unit) -> None:
        """Put back a unit that was never begun."""
        self._waiting.appendleft(unit)

    def failed(self, unit: Unit, detail: str) -> Poison | None:
        """Put back a unit that failed, whole or halved; return the sample when it is given up.

        Raises `RunFailedError` when nothing but failures came for long.
        """
        self._failures.append(Problem(where=f"unit {unit.number}", kind="worker", message=detail))
        if len(self._failures) >= FAILURES_IN_A_ROW:
            raise RunFailedError(
                f"stopped after {len(self._failures)} failures in a row without one finished unit",
                self._failures[-3:],
            )
        unit = unit.failed()
        if unit.attempts < self._attempts:
            # Behind the others: what killed its worker may be the time or the place, not the unit.
            self._waiting.append(unit)
            return None
        if len(unit.prompts) == 1:
            return Poison(unit.prompts[0], f"killed {unit.attempts} workers: {detail}")
        # A half needs one more death to be halved again; a sample alone is tried afresh.
        for half in unit.halves():
            begun = 0 if len(half.prompts) == 1 else self._attempts - 1
            self._waiting.append(replace(half, attempts=begun))
        return None
