"""One worker as the driver sees it: what it has in hand, and whether its engine still works.

Ray restarts a worker whose process or node dies (`max_restarts`). Of several units that it had then nobody
knows which it was at: the answer of one that it had made may be lost with it. They go back unblamed, each to
be handed out alone; a unit that was alone is to blame.

An engine can also die in a process that lives on (a CUDA error, a server that is away), and then every unit
fails in turn, none of which is bad. So a worker that raised is handed nothing until it was tried with a good
sample (`trials`). Where that is made, the failure was the unit's; where it is not, the unit goes back
unblamed and the worker is started anew; while its server does not answer, with growing pauses. One that came
back is compared with the others and tried too, so that no unit meets an engine that makes nothing.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from datagen.checks import Calibration
from datagen.driver.cluster import Place
from datagen.driver.trials import Trials
from datagen.errors import FleetError, RunFailedError
from datagen.planning.units import Unit
from datagen.store.errors import StoreError
from datagen.worker.actor import WorkerFacts
from datagen.worker.making import UnitResult
from datagen.worker.write_behind import UnitProgress
from schemas.errors import StrataError
from schemas.problem import Problem

FAILED_TRIALS = 3
"""So many trials in a row that fail, each but the first in a new process, and a worker is given up."""
FAILED_LOADS = 3
LASTING = 4
"""So many units in a row that fail where the trial does not: the engine is loaded anew, in case it leaks."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0


@dataclass(frozen=True)
class Made:
    """A unit came back."""

    unit: Unit
    result: UnitResult


@dataclass(frozen=True)
class Lost:
    """A unit did not come back. `running` is false where it is not to blame, or not known to be.

    `died` says that the worker's process did; else the engine raised `error`.
    """

    unit: Unit
    running: bool
    detail: str
    error: StrataError | None = None
    worker: int = 0
    died: bool = True


@dataclass(frozen=True)
class Told:
    """What became of a worker, in words."""

    worker: int
    text: str


class BeyondRepairError(Exception):
    """A worker does not come back, or makes nothing; `error` says why."""

    def __init__(self, error: StrataError) -> None:
        super().__init__(str(error))
        self.error = error


class Replica:
    """A worker, by its `number`; `loading` and `tried` are the stages on its way back."""

    def __init__(
        self,
        number: int,
        place: Place,
        new_actor: Callable[[Place], Any],
        patience_seconds: float,
        check: Callable[[WorkerFacts], None] = lambda _: None,
    ) -> None:
        self.number = number
        self.place = place
        self.actor = new_actor(place)
        self.in_flight: deque[tuple[Unit, Any]] = deque()
        self.suspects: list[Lost] = []
        """Units that failed while it lives, until it is known whose fault that was."""
        self.progress: UnitProgress | None = None
        self.asked: Any = None
        self.question: Any = None
        self.stage: Literal["well", "loading", "tried"] = "well"
        self._new_actor = new_actor
        self._patience = patience_seconds
        self._check = check
        self.alone = False
        """Whether what it has in hand is to have it for itself."""
        # What it had when it died, where that were several: Ray may tell of one long after the other.
        self._doubtful: frozenset[Any] = frozenset()
        self._down_since = self._not_before = 0.0
        self._said = ""
        self._pauses = self._failed_trials = self._failed_loads = self._in_a_row = 0

    def has_room(self, units: int) -> bool:
        """Say whether it works, and may be handed another unit, of `units` at a time."""
        full = self.in_flight and (self.alone or len(self.in_flight) >= units)
        return self.stage == "well" and not full

    def hand(self, unit: Unit, *, alone: bool = False) -> None:
        """Queue a unit; one to be made `alone` is handed to a worker that has no other."""
        self.alone = alone
        self.in_flight.append((unit, self.actor.make.remote(unit)))

    def collect(self, ready: set[Any], trials: Trials) -> list[Made | Lost]:
        """Return what came of the units in flight; of one that failed only once its fault is known."""
        came: list[Made | Lost] = []
        for unit, reference in list(self.in_flight):
            if reference not in ready:
                continue
            self.in_flight.remove((unit, reference))
            try:
                result = ray.get(reference)
            except RayTaskError as error:
                came += self._suspect(unit, cause_of(error))
            except RayError as error:
                doubtful = reference in self._doubtful
                if not doubtful and self.stage != "loading":
                    doubtful = bool(self.in_flight) or self.stage == "tried"
                    came += self._acquitted()
                    self._load_again()
                detail = f"{type(error).__name__}: {first_line(error)}"
                came.append(Lost(unit, not doubtful, detail, worker=self.number))
            else:
                self._in_a_row = 0
                trials.made(unit, result)
                came.append(Made(unit, result))
        return came

    def _suspect(self, unit: Unit, cause: StrataError) -> list[Lost]:
        lost = Lost(unit, True, str(cause), cause, self.number, died=False)
        if isinstance(cause, (StoreError, RunFailedError)):
            return [lost]  # these stop the run, whoever they come from
        if self.stage == "loading":
            return [replace(lost, running=False)]  # of the process before
        self.suspects.append(lost)
        if self.stage == "well":
            self._leave("tried")
        return []

    def look(self, calibration: Calibration, trials: Trials) -> list[Lost | Told]:
        """Go on with what makes a worker that failed well again; return what is known by now of its units.

        Raises `BeyondRepairError` when it is given up, `FleetError` when another came back in its place.
        """
        if self.stage == "well":
            return []
        if self.question is None:
            return self._ask(calibration, trials) if time.monotonic() >= self._not_before else []
        ready, _ = ray.wait([self.question], timeout=0)
        if not ready:
            if self.stage == "loading":
                self._check_patience("expected a loaded model, got none yet")
            return []
        question, self.question = self.question, None
        try:
            answer = ray.get(question)
        except RayTaskError as error:
            return self._raised(cause_of(error), trials)
        except RayError as error:
            return self._fell(error, trials)
        if self.stage == "tried":
            return self._passed()
        self._check(answer)
        self._failed_loads = 0
        self.stage = "tried"
        return self._ask(calibration, trials)

    def _ask(self, calibration: Calibration, trials: Trials) -> list[Lost | Told]:
        if self.stage == "loading":
            self.question = self.actor.come_back.remote(calibration)
            return []
        unit = trials.unit()
        if unit is None:
            return self._passed()
        self.question = self.actor.try_out.remote(unit)
        return []

    def _passed(self) -> list[Lost | Told]:
        """It makes what is good: what it did not make is to blame."""
        blamed, self.suspects = self.suspects, []
        self.stage = "well"
        self._pauses = self._failed_trials = 0
        before, self._in_a_row = self._in_a_row, self._in_a_row + len(blamed)
        if before < LASTING <= self._in_a_row:
            self._restart()
            return [*blamed, Told(self.number, f"is started anew, it failed {self._in_a_row} times in a row")]
        return [*blamed]

    def _raised(self, cause: StrataError, trials: Trials) -> list[Lost | Told]:
        if isinstance(cause, StoreError):
            raise cause
        if is_outage(cause):
            self._check_patience(str(cause))
        elif self.stage == "tried":
            self._count_trial(cause)
        else:
            self._count_load(cause)
        if self.stage == "tried":
            trials.failed()
            self._restart()  # a server that comes back is proven anew: it may be another
            text = "its server is away" if is_outage(cause) else "it makes nothing"
            return [*self._acquitted(), Told(self.number, f"is started anew, {text}: {cause}")]
        self._pause(LONGEST_PAUSE)
        before, self._said = self._said, str(cause)
        return [Told(self.number, f"waits to load: {cause}")] if before != self._said else []

    def _fell(self, error: RayError, trials: Trials) -> list[Lost | Told]:
        """Its process died, or does not answer yet."""
        if self.stage == "tried":
            if not self.in_flight:  # else it died of what it was at before
                problem = Problem(where=type(error).__name__, kind="worker", message=first_line(error))
                trials.failed()
                self._count_trial(FleetError("a worker died", [problem]))
            came = self._acquitted()
            self._load_again()
            return [*came, Told(self.number, f"died as it was tried: {first_line(error)}")]
        self._check_patience(first_line(error))
        if isinstance(error, ActorDiedError):
            ray.kill(self.actor)
            self.actor, self.asked = self._new_actor(self.place), None
        self._pause(0.5)  # Ray takes its time to say that it is not back yet
        return []

    def _count_trial(self, cause: StrataError) -> None:
        self._failed_trials += 1
        if self._failed_trials >= FAILED_TRIALS:
            headline = f"a worker makes nothing, also when it was started anew: {cause.headline}"
            raise BeyondRepairError(RunFailedError(headline, cause.problems))

    def _count_load(self, cause: StrataError) -> None:
        self._failed_loads += 1
        if self._failed_loads >= FAILED_LOADS:
            headline = f"a worker that was started anew does not load: {cause.headline}"
            raise BeyondRepairError(RunFailedError(headline, cause.problems))

    def _check_patience(self, message: str) -> None:
        if time.monotonic() - self._down_since > self._patience:
            problem = Problem(where="workers", kind="restart", message=message)
            raise BeyondRepairError(FleetError("a worker that failed does not come back", [problem]))

    def _acquitted(self) -> list[Lost]:
        back, self.suspects = [replace(lost, running=False) for lost in self.suspects], []
        return back

    def _restart(self) -> None:
        ray.kill(self.actor, no_restart=False)
        self._load_again()

    def _load_again(self) -> None:
        """Its process is gone, and with it whatever is in flight."""
        self._doubtful = frozenset(reference for _, reference in self.in_flight)
        self.progress = self.question = None
        self._leave("loading")

    def _leave(self, stage: Literal["loading", "tried"]) -> None:
        if self.stage == "well":
            self._down_since = time.monotonic()
            self._not_before = 0.0
            self._pauses, self._said = 0, ""
        self.stage = stage

    def _pause(self, longest: float) -> None:
        self._not_before = time.monotonic() + min(longest, FIRST_PAUSE * 2**self._pauses)
        self._pauses = min(self._pauses + 1, 16)

    def given_up(self) -> list[Lost]:
        """Return what it has in hand, unblamed."""
        back = [
            *self._acquitted(),
            *(Lost(unit, False, "", worker=self.number) for unit, _ in self.in_flight),
        ]
        self.in_flight.clear()
        return back


def is_outage(error: StrataError) -> bool:
    """Say whether an error is only that a server did not answer: it will be made once it does."""
    return bool(error.problems) and all(problem.kind == "server" for problem in error.problems)


def cause_of(error: RayTaskError) -> StrataError:
    """Return the error that was raised in a worker, as one of ours."""
    cause = error.cause
    if isinstance(cause, StrataError):
        return cause
    problem = Problem(where=type(cause).__name__, kind="worker", message=first_line(cause or error))
    return FleetError("a worker failed", [problem])


def first_line(error: BaseException) -> str:
    """Return what an error says first."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
