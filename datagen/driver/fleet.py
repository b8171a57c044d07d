"""The workers as the driver sees them: hand out units, wait for what comes, know who lives.

Ray restarts a worker whose process or node dies (`max_restarts`); its units come back from here as `Lost`,
the one it was running told from those that merely waited. With `cluster` and
`worker`, the only modules that know Ray.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError, RayTaskError

from datagen.checks import Calibration
from datagen.config import RaySettings
from datagen.driver.cluster import Place, join_cluster, living_nodes, release, reserve
from datagen.errors import FleetError
from datagen.placement import WorkerSettings, group_of, most_workers, room_problems
from datagen.planning.units import Unit
from datagen.worker.actor import STATUS, Worker, WorkerFacts, WorkOrder
from datagen.worker.making import UnitResult
from datagen.worker.write_behind import UnitProgress
from schemas.errors import StrataError
from schemas.problem import Problem

# Ray's stubs do not know that an actor class takes concurrency groups.
_REMOTE: Any = ray.remote(concurrency_groups={STATUS: 1})  # type: ignore[call-overload]


@dataclass(frozen=True)
class Made:
    """A unit came back."""

    unit: Unit
    result: UnitResult


@dataclass(frozen=True)
class Lost:
    """A unit did not come back: its worker died or failed. `running` is false for one that merely waited."""

    unit: Unit
    running: bool
    detail: str
    error: StrataError | None = None


@dataclass
class _Replica:
    """One worker as the driver sees it.

    `recovering` is the first question after its death: until it answers, no unit is handed to it, since what
    is sent to a worker that Ray is restarting comes back at once as if the unit had killed it.
    """

    actor: Any
    place: Place
    in_flight: "deque[tuple[Unit, Any]]" = field(default_factory=deque)
    progress: UnitProgress | None = None
    asked: Any = None
    waited: frozenset[Any] = frozenset()
    """What merely waited when it died: it is lost too, and Ray may say so long after the one it was at."""
    recovering: Any = None
    down_since: float = 0.0


class Fleet:
    """The replicas of one engine."""

    def __init__(
        self,
        order: WorkOrder,
        workers: WorkerSettings,
        cluster: RaySettings,
        worker_class: type[Worker] = Worker,
    ) -> None:
        self._worker_class = worker_class
        self._settings = workers
        self._order = order
        self._cluster = cluster
        self._replicas: list[_Replica] = []
        self._own_ray = False
        self._calibration = Calibration()

    def start(self, most: int) -> list[WorkerFacts]:
        """Start or join Ray and load at most `most` replicas; return who they are.

        Raises `FleetError` when no worker can be placed or loaded.
        """
        self._own_ray = join_cluster(self._cluster)
        group = group_of(self._settings, self._order.engine)
        places = reserve([group] * self._count(most), self._settings.nodes)
        self._replicas = [_Replica(self._new_actor(place), place) for place in places]
        return [self._describe(replica) for replica in self._replicas]

    def _new_actor(self, place: Place) -> Any:
        actor = _REMOTE(self._worker_class).options(
            max_restarts=-1, max_task_retries=0, **place.options(self._settings.cpus)
        )
        return actor.remote(self._order)

    def _describe(self, replica: _Replica) -> WorkerFacts:
        try:
            facts: WorkerFacts = ray.get(
                replica.actor.describe.remote(), timeout=self._settings.start_timeout_seconds
            )
        except RayTaskError as error:
            raise _cause(error) from error
        except GetTimeoutError as error:
            raise FleetError(
                f"no worker was ready within {self._settings.start_timeout_seconds:.0f} s",
                [Problem(where="workers", kind="timeout", message="expected a loaded model, got none yet")],
            ) from error
        except RayActorError as error:
            raise _actor_error(error) from error
        return facts

    def _count(self, most: int) -> int:
        """Return how many workers there are to be, which the cluster has room for.

        Raises `FleetError` when it has not.
        """
        nodes = living_nodes()
        as_many = max(1, most_workers(self._settings, nodes)) if self._settings.gpus else 1
        count = min(most, as_many if self._settings.count == "auto" else self._settings.count)
        if problems := room_problems(self._settings, count, nodes):
            raise FleetError("the cluster has no room for the workers", problems)
        return count

    @property
    def n_workers(self) -> int:
        return len(self._replicas)

    @property
    def n_in_flight(self) -> int:
        return sum(len(replica.in_flight) for replica in self._replicas)

    def call_each(self, method: str, *args: object) -> list[Any]:
        """Call a method of every worker at once, and return what each returns; their errors come through."""
        return self._answers([getattr(replica.actor, method).remote(*args) for replica in self._replicas])

    def call_first(self, method: str, *args: object) -> Any:
        """Call a method of the first worker, and return what it returns."""
        return self._answers([getattr(self._replicas[0].actor, method).remote(*args)])[0]

    @staticmethod
    def _answers(references: list[Any]) -> list[Any]:
        try:
            return list(ray.get(references))
        except RayTaskError as error:
            raise _cause(error) from error
        except RayActorError as error:
            raise _actor_error(error) from error

    def calibrate(self, calibration: Calibration) -> str:
        """Tell every worker what the audit set says; one that is restarted is told again.

        Returns how samples are bound to their ids, in words: the first worker's, as every other one's.
        """
        self._calibration = calibration
        return str(self.call_each("calibrate", calibration)[0])

    def wants_work(self) -> bool:
        """Say whether some worker that lives has room for another unit."""
        return any(len(replica.in_flight) < self._settings.units_in_flight for replica in self._living())

    def hand_out(self, unit: Unit) -> None:
        """Give a unit to the worker that has fewest; asked for only while one `wants_work`."""
        replica = min(self._living(), key=lambda replica: len(replica.in_flight))
        replica.in_flight.append((unit, replica.actor.make.remote(unit)))

    def _living(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.recovering is None]

    def wait(self, seconds: float) -> list[Made | Lost]:
        """Return what came within about `seconds`, at once when something is there.

        Raises `FleetError` when a worker that died does not come back.
        """
        for replica in self._replicas:
            if replica.recovering is not None:
                self._recover(replica)
        references = [reference for replica in self._replicas for _, reference in replica.in_flight]
        if not references:
            time.sleep(seconds)
            return []
        ready, _ = ray.wait(references, num_returns=1, timeout=seconds)
        if ready:
            more, _ = ray.wait(references, num_returns=len(references), timeout=0)
            ready = more
        came: list[Made | Lost] = []
        for replica in self._replicas:
            came += self._collect(replica, set(ready))
        return came

    def _collect(self, replica: _Replica, ready: set[Any]) -> list[Made | Lost]:
        came: list[Made | Lost] = []
        running = True  # a worker runs its units in order: the oldest is the one it was at
        for unit, reference in list(replica.in_flight):
            if reference not in ready:
                running = False
                continue
            replica.in_flight.remove((unit, reference))
            try:
                came.append(Made(unit, ray.get(reference)))
            except RayTaskError as error:
                cause = _cause(error)
                came.append(Lost(unit, True, str(cause), cause))
            except RayError as error:
                waited = reference in replica.waited
                detail = f"{type(error).__name__}: {_first_line(error)}"
                was_at_it = running and not waited
                came.append(Lost(unit, was_at_it, detail))
                running = False
                if not waited:
                    self._note_death(replica, 0 if was_at_it else 1)
        return came

    def _note_death(self, replica: _Replica, at_hand: int) -> None:
        """Note that a worker died; of its units in flight the first `at_hand` did not merely wait."""
        if replica.recovering is None:
            replica.down_since = time.monotonic()
            replica.progress = None
            replica.waited = frozenset(reference for _, reference in [*replica.in_flight][at_hand:])
            replica.recovering = replica.actor.calibrate.remote(self._calibration)

    def _recover(self, replica: _Replica) -> None:
        """See whether a worker that died answers again; one that Ray has given up is made anew."""
        ready, _ = ray.wait([replica.recovering], timeout=0)
        if not ready:
            return
        try:
            ray.get(replica.recovering)
        except RayError as error:
            if time.monotonic() - replica.down_since > self._settings.start_timeout_seconds:
                raise FleetError(
                    "a worker that died does not come back",
                    [Problem(where="workers", kind="restart", message=_first_line(error))],
                ) from error
            if isinstance(error, ActorDiedError):
                replica.actor, replica.asked = self._new_actor(replica.place), None
            replica.recovering = replica.actor.calibrate.remote(self._calibration)
        else:
            replica.recovering = None

    def progress(self) -> list[UnitProgress | None]:
        """Return what each worker last said of the unit in hand, `None` for one that does not answer."""
        for replica in self._replicas:
            if replica.asked is not None:
                ready, _ = ray.wait([replica.asked], timeout=0)
                if not ready:
                    continue
                try:
                    replica.progress = ray.get(replica.asked)
                except RayError:
                    replica.progress = None  # dead or being restarted: shown as not alive
            replica.asked = replica.actor.status.remote()
        return [_of_units_in_hand(replica) for replica in self._replicas]

    def wind_up(self) -> None:
        """Tell every worker to close the part in hand."""
        for replica in self._replicas:
            replica.actor.wind_up.remote()

    def close(self) -> None:
        """Let the workers go, and Ray with them where it was started here."""
        for replica in self._replicas:
            ray.kill(replica.actor)
        release([replica.place for replica in self._replicas])
        self._replicas = []
        if self._own_ray:
            ray.shutdown()


def _of_units_in_hand(replica: _Replica) -> UnitProgress | None:
    """Return what a worker said; nothing when it is about a unit that has come back, and counts already."""
    said = replica.progress
    if said is None or any(unit.number == said.unit for unit, _ in replica.in_flight):
        return said
    return UnitProgress()


def _cause(error: RayTaskError) -> StrataError:
    cause = error.cause
    if isinstance(cause, StrataError):
        return cause
    problem = Problem(where=type(cause).__name__, kind="worker", message=_first_line(cause or error))
    return FleetError("a worker failed", [problem])


def _actor_error(error: RayActorError) -> StrataError:
    cause = error.__cause__
    if isinstance(cause, RayTaskError):
        return _cause(cause)
    return FleetError("a worker cannot start", [Problem(where="workers", kind="start", message=str(error))])


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
