"""The Ray actor: one engine replica that makes parts, and answers how far it is while it does.

With `cluster`, `replica` and `fleet`, the only modules that know Ray. Status calls run in a thread of their
own (a concurrency group), so that a long unit never makes a worker look dead.
"""

import os
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import ray

from datagen.checks import Binding, Calibration, calibrated, unbound
from datagen.checks.witness import Reference
from datagen.engines.base import Answering, Engine, EngineInfo
from datagen.engines.ends import ends_of
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.opening import open_engine
from datagen.engines.settings import EngineSettings
from datagen.planning.rendering import template_of
from datagen.planning.units import Unit, batches
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Dataset
from datagen.store.door import Door
from datagen.store.errors import DoorError
from datagen.store.opening import open_door
from datagen.store.part_reader import PartReader
from datagen.worker.answering import Answered, Answerer, AnsweringOrder
from datagen.worker.making import HowAnswered, PartMaker, UnitResult
from datagen.worker.proving import AuditResult, HeldAgain, prove_again, prove_part
from datagen.worker.write_behind import UnitProgress
from schemas.schema import Schema
from schemas.target import Target

STATUS = "status"


@dataclass(frozen=True)
class WorkOrder:
    """What every worker of a run is told once."""

    root: str
    dataset: str
    run_id: str
    schema: Schema
    engine: EngineSettings
    batch_tokens: int
    answering: AnsweringOrder | None = None
    """`None` in capture mode."""
    place: Mapping[str, str] = field(default_factory=dict)
    """Which bucket the driver means by `root`, as environment variables; a worker's own go before."""
    writes: bool = True
    """False for a probe."""


@dataclass(frozen=True)
class WorkerFacts:
    """Who a worker is: compared with what the driver read from the model's files before any part is made."""

    host: str
    pid: int
    engine: EngineInfo
    target: Target


class Worker:
    """Makes parts; lives in one process with one engine, which is loaded when it is first needed.

    Not in the constructor: what goes wrong there reaches the driver as text, not as the error that it is.
    """

    def __init__(self, order: WorkOrder) -> None:
        self._order = order
        self._stop = threading.Event()
        self._progress = UnitProgress()
        self._keeping = True
        self._calibration = Calibration()
        self._binding = unbound("by nothing (there is no audit set)")

    @cached_property
    def _door(self) -> Door:
        for name, value in self._order.place.items():
            os.environ.setdefault(name, value)
        return open_door(self._order.root)

    @cached_property
    def _engine(self) -> Engine:
        return open_engine(self._order.engine, self._order.schema)

    @cached_property
    def _answerer(self) -> Answerer | None:
        order = self._order.answering
        if order is None:
            return None
        if not isinstance(self._engine, Answering):
            raise EngineError(f"the engine {self._order.engine.name} cannot let its target answer")
        template = template_of(self._order.engine, order.prompts)
        return Answerer(self._engine, order, template, self._order.run_id, self._progress, self._stop.is_set)

    def _maker(self) -> PartMaker:
        return PartMaker(
            engine=self._engine,
            door=self._door,
            dataset=self._order.dataset,
            run_id=self._order.run_id,
            batch_tokens=self._order.batch_tokens,
            calibration=self._calibration,
            binding=self._binding,
            answered=self._how_answered,
            progress=self._progress,
            keeping=self._keeping,
            stopping=self._stop.is_set,
        )

    def describe(self) -> WorkerFacts:
        """Load the model, and return who this is; where a part could not be written, nothing is loaded."""
        if self._order.writes:
            self._check_place()
        return WorkerFacts(platform.node(), os.getpid(), self._engine.info, self._engine.target)

    def _check_place(self) -> None:
        """Raise `DoorError` where this process cannot write the dataset: its rights are not the driver's."""
        host = platform.node()
        environment = "a worker has the environment in which Ray was started on its node, or the job's"
        problems = [
            problem.model_copy(
                update={
                    "where": f"worker on {host}: {problem.where}",
                    "repair": "; ".join(filter(None, (problem.repair, environment))),
                }
            )
            for problem in self._door.write_problems(self._order.dataset)
        ]
        if problems:
            raise DoorError(f"the worker on {host} cannot write the dataset", problems)

    @property
    def _how_answered(self) -> HowAnswered:
        order = self._order.answering
        if order is None:
            return "no"
        return "greedily" if order.sampling.temperature == 0 else "sampled"

    def calibrate(self, calibration: Calibration) -> str:
        """Take what the audit set says: samples and parts that depart from it are refused from now on.

        Returns how samples are bound to their ids, in words.
        """
        engine = self.describe().engine
        self._calibration = replace(calibration, parting=engine.parting)
        self._binding = self._bound(calibration)
        return self._binding.said

    def come_back(self, calibration: Calibration) -> WorkerFacts:
        """Be again what the others are, after a restart: return who this is once the model is loaded."""
        facts = self.describe()
        self.calibrate(calibration)
        return facts

    def try_out(self, unit: Unit) -> None:
        """Make a part and keep nothing of it; raises what keeps this worker from making parts."""
        self._keeping = False
        try:
            self.make(unit)
        finally:
            self._keeping = True

    def _bound(self, calibration: Calibration) -> Binding:
        if not calibration.audited:
            return unbound("by nothing (there is no audit set)")
        try:
            ends = ends_of(self._engine, self._order.engine)
        except OpeningError as error:
            told = [str(problem) for problem in error.problems]
            return unbound(f"by nothing ({'; '.join([error.headline, *told])})")
        return calibrated(ends, self._order.schema, calibration.audited)

    def make(self, unit: Unit) -> UnitResult:
        """Make one part of a unit; where the target answers, first its answers.

        Told to stop, it asks no more, and captures what is answered: answers cost far more than states.
        """
        self._progress.begin(unit.number)
        if self._answerer is None:
            return self._maker().make(unit)
        begun = time.monotonic()
        answered = self._answerer.answer(unit.prompts)
        seconds = time.monotonic() - begun
        maker = replace(self._maker(), stopping=_never)
        return _with_answers(maker.make(replace(unit, prompts=answered.prompts)), answered, seconds)

    def audit(self, dataset: str, schema: Schema, unit: Unit, reference: Reference) -> AuditResult:
        """Make the part of an audit set, with the same loaded model but its tensors, and prove it."""
        engine = self._engine.handing_out(schema)
        maker = replace(
            self._maker(),
            engine=engine,
            dataset=dataset,
            calibration=Calibration(),
            binding=unbound("by nothing (an audit set is held against more)"),
            answered="no",
            recapture=False,
            with_argmax=True,
            progress=UnitProgress(),
        )
        result = maker.make(unit)
        if result.part is None:
            return AuditResult(result)
        reader = PartReader(self._door, dataset, result.part.record.part_id, schema)
        return prove_part(result, reader, engine, self._order.engine, reference)

    def prove_again(self, dataset: str, version: int, schema: Schema, reference: Reference) -> HeldAgain:
        """Hold what the loaded model gives now of an audit set's samples against what is stored of them."""
        snapshot = Dataset.open(self._door, dataset).snapshot(version)
        return prove_again(snapshot, self._engine.handing_out(schema), self._order.engine, reference)

    def probe(self, prompts: Sequence[Prompt], seconds: float) -> float:
        """Return tokens a second over batches of `prompts`, for about `seconds`; nothing is written.

        Where the target answers, short answers are timed, and both rates are joined by the tokens expected.
        """
        if self._answerer is None:
            return self._capture_rate(prompts, seconds)
        begun = time.monotonic()
        answered = self._answerer.probe(prompts)
        rate = sum(map(len, answered)) / max(time.monotonic() - begun, 1e-9)
        chosen = sum(prompt.n_planned - prompt.n_given for prompt in prompts)
        share = chosen / max(1, sum(prompt.n_planned for prompt in prompts))
        return 1.0 / (share / rate + 1.0 / self._capture_rate(prompts, seconds))

    def _capture_rate(self, prompts: Sequence[Prompt], seconds: float) -> float:
        made = list(batches(prompts, self._order.batch_tokens))
        if not made:
            return 0.0
        self._make_nothing(made[0])  # the first batch pays for warming up
        tokens, begun = 0, time.monotonic()
        for batch in made[1:] or made:
            tokens += self._make_nothing(batch)
            if time.monotonic() - begun > seconds:
                break
        return tokens / max(time.monotonic() - begun, 1e-9)

    def _make_nothing(self, batch: Sequence[Prompt]) -> int:
        self._engine.submit([prompt.input_ids.tolist() for prompt in batch]).result()
        return sum(len(prompt.input_ids) for prompt in batch)

    def close(self) -> None:
        """Let the engine go, and what it has outside of this process: memory, files, processes of its own."""
        engine = self.__dict__.pop("_engine", None)  # none that was never opened is opened for this
        if engine is not None:
            engine.close()

    @ray.method(concurrency_group=STATUS)  # type: ignore[untyped-decorator, unused-ignore]
    def status(self) -> UnitProgress:
        """Return how far the unit in hand is."""
        return replace(self._progress)

    @ray.method(concurrency_group=STATUS)  # type: ignore[untyped-decorator, unused-ignore]
    def wind_up(self) -> None:
        """Close the part in hand after the batch in hand; what is left of its unit comes back unfinished."""
        self._stop.set()


def _never() -> bool:
    return False


def _with_answers(result: UnitResult, answered: Answered, seconds: float) -> UnitResult:
    """Return what came of a unit, its answers and the time that they took included."""
    return replace(
        result,
        quarantined=(*answered.quarantined, *result.quarantined),
        unfinished=(*answered.unfinished, *result.unfinished),
        engine_seconds=result.engine_seconds + seconds,
        seconds=result.seconds + seconds,
    )
