"""Which unit goes next, and what becomes of a unit that failed: pure, no cluster in sight.

A unit that failed is tried elsewhere: while there is a worker on which it has not failed, it goes to no
other, so that one bad worker spoils nothing that a good one can make. After `attempts` failures it is halved,
and a single sample that failed so often, on two workers where there are two, is poison: given up, with the
reason. Units that are not to blame go back unharmed.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from datagen.errors import RunFailedError
from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem

DEATHS_IN_A_ROW = 16
"""So many deaths without one finished unit between them are a fault of the fleet, not of a sample.

A worker that only raised was tried with a good sample before it is blamed on a unit, and is not counted.
"""


@dataclass(frozen=True)
class Failure:
    """What a unit did on a worker: it killed it, or made its engine raise."""

    worker: int
    detail: str
    died: bool


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
        self._deaths: list[Problem] = []
        self._failures: dict[str, list[Failure]] = {}
        """By the number of a unit that goes back as it was."""
        self._doubtful: set[str] = set()
        """Numbers of units that a worker had, among others, when it died: each is made alone to know."""

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self, worker: int, workers: Collection[int], *, idle: bool = True) -> Unit | None:
        """Return the unit to hand to `worker` of all `workers`, `None` when none waits for it.

        One that is `is_doubtful` is for a worker that is `idle`.
        """
        for at, unit in enumerate(self._waiting):
            failed_on = self._failed_on(unit)
            if self.is_doubtful(unit) and not idle:
                continue
            if worker not in failed_on or failed_on.issuperset(workers):
                del self._waiting[at]
                return unit
        return None

    def _failed_on(self, unit: Unit) -> set[int]:
        return {failure.worker for failure in self._failures.get(unit.number, ())}

    def finished(self) -> None:
        """Note that a unit was made: what died before it was no fault of the fleet."""
        self._deaths.clear()

    def is_doubtful(self, unit: Unit) -> bool:
        """Say whether a unit is to be made alone, since a worker died that had it among others."""
        return unit.number in self._doubtful

    def returned(self, unit: Unit, *, doubtful: bool = False) -> None:
        """Put back a unit that is not to blame, or not known to be."""
        if doubtful:
            self._doubtful.add(unit.number)
        self._waiting.appendleft(unit)

    def failed(self, unit: Unit, failure: Failure, workers: Collection[int]) -> Poison | None:
        """Put back a unit that failed on one of `workers`, whole or halved; return the sample given up.

        Raises `RunFailedError` when nothing but deaths came for long.
        """
        if failure.died:
            self._count_death(unit, failure)
        failures = self._failures.setdefault(unit.number, [])
        failures.append(failure)
        unit = unit.failed()
        alone = len(unit.prompts) == 1
        elsewhere = alone and len(self._failed_on(unit)) < min(2, len(workers))
        if unit.attempts < self._attempts or elsewhere:
            # Behind the others: what made it fail may be the time or the place, not the unit.
            self._waiting.append(unit)
            return None
        del self._failures[unit.number]
        if alone:
            return Poison(unit.prompts[0], _told(failures))
        # A half needs one more failure to be halved again; a sample alone is tried afresh.
        for half in unit.halves():
            begun = 0 if len(half.prompts) == 1 else self._attempts - 1
            self._waiting.append(replace(half, attempts=begun))
            if self.is_doubtful(unit):
                self._doubtful.add(half.number)
        return None

    def _count_death(self, unit: Unit, failure: Failure) -> None:
        self._deaths.append(Problem(where=f"unit {unit.number}", kind="worker", message=failure.detail))
        if len(self._deaths) >= DEATHS_IN_A_ROW:
            raise RunFailedError(
                f"stopped after workers died {len(self._deaths)} times in a row without one finished unit",
                self._deaths[-3:],
            )


def _told(failures: list[Failure]) -> str:
    """Return in words what a sample did, which is the same wherever it stood before."""
    times, deaths = len(failures), sum(failure.died for failure in failures)
    if deaths == times:
        return f"killed {times} worker{'s' if times > 1 else ''}: {failures[-1].detail}"
    on = len({failure.worker for failure in failures})
    killed = f", and killed {deaths}" if deaths else ""
    often = "once" if times == 1 else f"{times} times"
    where = f"on {on} worker{'s' if on > 1 else ''}{killed}"
    return f"failed {often} {where}: last error: {failures[-1].detail}"
