"""The workers as the driver sees them: hand out units, wait for what comes, know who lives.

With `cluster`, `replica` and `worker`, the only modules that know Ray.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from datagen.checks import Calibration
from datagen.config import RaySettings
from datagen.driver.cluster import Place, join_cluster, living_nodes, release, reserve
from datagen.driver.replica import BeyondRepairError, Lost, Made, Replica, Told, cause_of, first_line
from datagen.driver.sameness import differences
from datagen.driver.trials import Trials
from datagen.errors import FleetError
from datagen.placement import WorkerSettings, group_of, most_workers, room_problems
from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from datagen.worker.actor import STATUS, Worker, WorkerFacts, WorkOrder
from datagen.worker.write_behind import UnitProgress
from schemas.errors import StrataError
from schemas.problem import Problem

LOG = logging.getLogger(__name__)
CLOSING_SECONDS = 30.0
# Ray's stubs do not know that an actor class takes concurrency groups.
_REMOTE: Any = ray.remote(concurrency_groups={STATUS: 1})  # type: ignore[call-overload]


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
        self._replicas: list[Replica] = []
        self._trials = Trials()
        self._own_ray = False
        self._loaded = False
        self._calibration = Calibration()

    def start(self, most: int) -> list[WorkerFacts]:
        """Start or join Ray and load at most `most` replicas; return who they are.

        Raises `FleetError` when no worker can be placed or loaded.
        """
        self._own_ray = join_cluster(self._cluster)
        group = group_of(self._settings, self._order.engine)
        places = reserve([group] * self._count(most), self._settings.nodes)
        patience = self._settings.start_timeout_seconds
        self._replicas = [
            Replica(number, place, self._new_actor, patience, self._check)
            for number, place in enumerate(places)
        ]
        facts = [self._describe(replica) for replica in self._replicas]
        self._first, self._loaded = facts[0], True
        return facts

    def _check(self, came_back: WorkerFacts) -> None:
        """Refuse a worker that Ray started again on a node with other software, or another model.

        Raises `FleetError`.
        """
        first = self._first
        problems = differences(
            [came_back], first.engine.version, first.target.identity(), self._order.engine.model
        )
        if problems:
            raise FleetError("a worker came back that does not run what this run declares", problems)

    def _new_actor(self, place: Place) -> Any:
        actor = _REMOTE(self._worker_class).options(
            max_restarts=-1, max_task_retries=0, **place.options(self._settings.cpus)
        )
        return actor.remote(self._order)

    def _describe(self, replica: Replica) -> WorkerFacts:
        try:
            facts: WorkerFacts = ray.get(
                replica.actor.describe.remote(), timeout=self._settings.start_timeout_seconds
            )
        except RayTaskError as error:
            raise cause_of(error) from error
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
        return sum(len(replica.in_flight) + len(replica.suspects) for replica in self._replicas)

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
            raise cause_of(error) from error
        except RayActorError as error:
            raise _actor_error(error) from error

    def calibrate(self, calibration: Calibration) -> str:
        """Tell every worker what the audit set says; one that is restarted is told again.

        Returns how samples are bound to their ids, in words: the first worker's, as every other one's.
        """
        self._calibration = calibration
        return str(self.call_each("calibrate", calibration)[0])

    def try_with(self, made_before: Sequence[Prompt], others: Sequence[Prompt]) -> None:
        """Say which samples were made before, and which are to be made: with one a worker is tried."""
        self._trials = Trials(made_before, others)

    @property
    def workers(self) -> list[int]:
        """The numbers of the workers, those on their way back included."""
        return [replica.number for replica in self._replicas]

    @property
    def recovering(self) -> bool:
        """Whether of some worker it is not known that it works."""
        return any(replica.stage != "well" for replica in self._replicas)

    def wanting(self) -> list[int]:
        """Return the workers that have room for another unit, those with fewest first."""
        able = [one for one in self._replicas if one.has_room(self._settings.units_in_flight)]
        return [one.number for one in sorted(able, key=lambda one: len(one.in_flight))]

    def idle(self, worker: int) -> bool:
        """Say whether a worker has no unit in hand."""
        return not self._replica(worker).in_flight

    def hand_out(self, unit: Unit, worker: int | None = None, *, alone: bool = False) -> None:
        """Give a unit to a worker that is `wanting`, the first of them unless said otherwise."""
        self._replica(self.wanting()[0] if worker is None else worker).hand(unit, alone=alone)

    def _replica(self, number: int) -> Replica:
        (replica,) = (one for one in self._replicas if one.number == number)
        return replica

    def wait(self, seconds: float) -> list[Made | Lost | Told]:
        """Return what came within about `seconds`, at once when something is there.

        Raises `FleetError` or `RunFailedError` when the last worker does not come back, or makes nothing.
        """
        if came := self._look():
            return came
        references = [reference for replica in self._replicas for _, reference in replica.in_flight]
        questions = [replica.question for replica in self._replicas if replica.question is not None]
        if not references and not questions:
            time.sleep(seconds)
            return []
        ready, _ = ray.wait([*references, *questions], num_returns=1, timeout=seconds)
        if ready and references:
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        for replica in self._replicas:
            came += replica.collect(set(ready), self._trials)
        return [*came, *self._look()]

    def _look(self) -> list[Made | Lost | Told]:
        came: list[Made | Lost | Told] = []
        for replica in list(self._replicas):
            try:
                came += replica.look(self._calibration, self._trials)
            except BeyondRepairError as beyond:
                came += self._give_up(replica, beyond.error)
        return came

    def _give_up(self, replica: Replica, error: StrataError) -> list[Lost | Told]:
        """Go on without a worker; raises `error` for the last one."""
        if len(self._replicas) == 1:
            raise error
        self._replicas.remove(replica)
        ray.kill(replica.actor)
        release([replica.place])
        return [*replica.given_up(), Told(replica.number, f"is given up: {error}")]

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
        """Let the workers go, and Ray with them where it was started here.

        Their engines are closed before, but for those of workers that load or are at a unit: these are
        stopped at once, and what they leave outside of their process the next engine on their host removes.
        """
        try:
            if self._loaded:
                idle = [one for one in self._replicas if one.stage == "well" and not one.in_flight]
                self._close_engines([replica.actor.close.remote() for replica in idle])
        finally:
            for replica in self._replicas:
                ray.kill(replica.actor)
            release([replica.place for replica in self._replicas])
            self._replicas = []
            if self._own_ray:
                ray.shutdown()

    @staticmethod
    def _close_engines(asked: list[Any]) -> None:
        if not asked:
            return
        closed, late = ray.wait(asked, num_returns=len(asked), timeout=CLOSING_SECONDS)
        if late:
            LOG.warning("%d engines were not closed within %g s, and are stopped", len(late), CLOSING_SECONDS)
        for one in closed:
            try:
                ray.get(one)
            except RayError as error:
                LOG.warning("an engine could not be closed: %s", first_line(error))


def _of_units_in_hand(replica: Replica) -> UnitProgress | None:
    """Return what a worker said; nothing when it is about a unit that has come back, and counts already."""
    said = replica.progress
    if said is None or any(unit.number == said.unit for unit, _ in replica.in_flight):
        return said
    return UnitProgress()


def _actor_error(error: RayActorError) -> StrataError:
    cause = error.__cause__
    if isinstance(cause, RayTaskError):
        return cause_of(cause)
    return FleetError("a worker cannot start", [Problem(where="workers", kind="start", message=str(error))])
