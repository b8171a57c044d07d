"""The loop in the middle of a run: hand out, take what comes, commit when due, stop when asked."""

from collections.abc import Sequence

from datagen.driver.fleet import Fleet
from datagen.driver.ledger import Ledger
from datagen.driver.replica import Lost, Made, Told
from datagen.driver.schedule import Failure, Poison, Schedule
from datagen.errors import RunFailedError
from datagen.placement import WorkerSettings
from datagen.progress import Reporter, Standing
from datagen.stopping import Stopping
from datagen.store.errors import StoreError
from datagen.worker.making import UnitResult
from datagen.worker.write_behind import UnitProgress, quarantined
from schemas.problem import Problem

POLL_SECONDS = 0.25
REFUSED_REASONS = frozenset({"non_finite", "wrong_content", "poison"})
"""Quarantined for what came back, not for what was asked."""


class Loop:
    """Makes all units of a schedule with a fleet, and hands parts to the ledger."""

    def __init__(
        self,
        workers: WorkerSettings,
        run_id: str,
        fleet: Fleet,
        schedule: Schedule,
        ledger: Ledger,
        reporter: Reporter,
        stopping: Stopping,
        *,
        answering: bool = False,
    ) -> None:
        self._workers = workers
        self._run_id = run_id
        self._fleet = fleet
        self._schedule = schedule
        self._ledger = ledger
        self._reporter = reporter
        self._stopping = stopping
        self._answering = answering
        self._winding_up = False
        self._accused: list[Poison] = []
        """Samples given up, until the fleet is known to be well: one that is not gives up on everything."""

    def work(self) -> None:
        """Work until all is made, or what is in hand is finished after a signal.

        Raises `RunFailedError` or `StoreError` when the run cannot go on; what came before is in the ledger.
        """
        while True:
            if self._stopping.requested and not self._winding_up:
                self._wind_up()
            while not self._winding_up and self._hand_out():
                pass
            if not self._fleet.n_in_flight and (self._winding_up or self._all_made()):
                return
            for came in self._fleet.wait(POLL_SECONDS):
                self._take(came)
            if self._accused and not self._fleet.recovering:
                self._give_up_accused()
            if self._ledger.due():
                version = self._ledger.commit()
                if version is not None:
                    self._reporter.say("commit", f"version {version.number}", version=version.number)
            self._show()

    def _all_made(self) -> bool:
        return not len(self._schedule) and not self._accused

    def _hand_out(self) -> bool:
        """Hand out one unit, and say whether there was one that a worker could be given."""
        for worker in self._fleet.wanting():
            unit = self._schedule.next(worker, self._fleet.workers, idle=self._fleet.idle(worker))
            if unit is not None:
                self._fleet.hand_out(unit, worker, alone=self._schedule.is_doubtful(unit))
                return True
        return False

    def _wind_up(self) -> None:
        self._winding_up = True
        name = self._stopping.signal_name or "a signal"
        self._reporter.say("stopping", f"{name}: finishing the parts in hand; once more stops at once")
        self._fleet.wind_up()
        # At once, what is whole already: a job that is stopped may have seconds only.
        self._ledger.commit()

    def _take(self, came: Made | Lost | Told) -> None:
        if isinstance(came, Told):
            self._reporter.say("lost", f"worker {came.worker} {came.text}", worker=came.worker)
        elif isinstance(came, Made):
            self._check_part(came.result)
            self._schedule.finished()
            self._ledger.add(came.result.part, came.result.quarantined)
            self._ledger.count(came.result)
            self._give_up_accused()
        elif isinstance(came.error, (StoreError, RunFailedError)):
            raise came.error
        elif not came.running or self._winding_up:
            if came.died and not self._winding_up:
                self._reporter.say("lost", f"unit {came.unit.number}, to be made again: {came.detail}")
            self._schedule.returned(came.unit, doubtful=came.died)
        else:
            self._reporter.say("lost", f"unit {came.unit.number}: {came.detail}", unit=came.unit.number)
            failure = Failure(came.worker, came.detail, came.died)
            poison = self._schedule.failed(came.unit, failure, self._fleet.workers)
            if poison is not None:
                self._accused.append(poison)

    def _give_up_accused(self) -> None:
        """Record the samples that were given up: a worker makes others, so that it was their fault.

        A run that stops before it knows records nothing of them, and the next one tries them again.
        """
        rows = [quarantined(one.prompt, "poison", one.detail, self._run_id) for one in self._accused]
        self._accused.clear()
        self._ledger.add(None, rows)
        self._check_refused()

    def _check_part(self, result: UnitResult) -> None:
        """Stop at a wrong part that is more than may be refused, and record nothing of it: a later run, with
        an engine that was mended, makes its samples."""
        refused = sum(self._ledger.refused(REFUSED_REASONS).values()) + len(result.quarantined)
        if result.wrong and refused > self._workers.max_refused:
            raise RunFailedError(
                f"stopped: unit {result.unit} is wrong as a whole, and its {len(result.quarantined)} samples "
                f"are more than workers.max_refused = {self._workers.max_refused} allows",
                result.wrong,
            )

    def _check_refused(self) -> None:
        refused = self._ledger.refused(REFUSED_REASONS)
        if sum(refused.values()) > self._workers.max_refused:
            problems = [
                Problem(where=reason, kind="quarantine", message=f"{n} samples")
                for reason, n in refused.items()
            ]
            raise RunFailedError(
                f"stopped: more than workers.max_refused = {self._workers.max_refused} samples were refused",
                problems,
            )

    def _show(self) -> None:
        progress = self._fleet.progress()
        alive = [worker for worker in progress if worker is not None]
        version = self._ledger.version
        self._reporter.show(
            Standing(
                samples=self._ledger.n_samples + sum(worker.samples for worker in alive),
                tokens=self._ledger.n_tokens + sum(worker.tokens for worker in alive),
                payload_bytes=self._ledger.payload_bytes + sum(worker.payload_bytes for worker in alive),
                quarantined=self._ledger.n_quarantined + sum(worker.quarantined for worker in alive),
                workers_alive=len(alive),
                workers=self._fleet.n_workers,
                version=version.number if version else None,
                answered=self._answered(alive) if self._answering else None,
            )
        )

    def _answered(self, alive: Sequence[UnitProgress]) -> int:
        """Return how many samples have their answers: those made, and those of the units in hand."""
        return self._ledger.n_samples + sum(max(worker.answered, worker.samples) for worker in alive)
