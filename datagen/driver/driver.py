"""A run from start to end: prepare, resume, load, audit, make, commit, and end in an orderly way.

What is committed stays, whatever happens after. Until the workers have loaded nothing is written, so that a
run that cannot start leaves nothing behind.
"""

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from datagen.checks import OnPolicyCounts
from datagen.code_version import code_version, package_versions
from datagen.config import RunConfig
from datagen.driver.auditing import audit
from datagen.driver.fleet import Fleet
from datagen.driver.greeting import greet
from datagen.driver.ledger import Ledger
from datagen.driver.loop import Loop
from datagen.driver.resume import Held, held
from datagen.driver.schedule import Schedule
from datagen.kept_norm import keep_norm_of_run
from datagen.planning.kept_audit import kept_audit
from datagen.planning.places import absolute_model, absolute_root
from datagen.planning.plan import check_room, predict
from datagen.planning.preparation import Preparation, prepare
from datagen.planning.units import make_units
from datagen.progress import Reporter, open_reporter
from datagen.prompts.prompt import Prompt
from datagen.run_ids import new_run_id
from datagen.stopping import Stopping
from datagen.store.bucket_reach import place_settings
from datagen.store.dataset import Dataset
from datagen.worker.actor import Worker, WorkOrder
from datagen.worker.answering import AnsweringOrder
from schemas.errors import StrataError
from schemas.records import Outcome, QuarantinedSample, RunStart
from schemas.run_checks import RunChecks


@dataclass(frozen=True)
class RunSummary:
    """What a run did; a run that found nothing to do is complete, with no samples of its own."""

    run_id: str
    dataset: str
    outcome: Outcome
    version: int | None
    n_samples: int
    n_tokens: int
    size_bytes: int
    quarantined: Mapping[str, int]
    prompts_read: int
    already_made: int
    already_quarantined: int
    duplicates: int
    seconds: float
    making_seconds: float
    binding: str = ""
    """What binds samples to their ids, in words."""
    bound: int = 0
    unbound: int = 0
    on_policy_counts: OnPolicyCounts = field(default_factory=OnPolicyCounts)
    """Of the target's own answers, where its argmax is the stored token."""

    @property
    def n_quarantined(self) -> int:
        return sum(self.quarantined.values())


@dataclass(frozen=True)
class Job:
    """What a run knows before it loads a model."""

    config: RunConfig
    run_id: str
    prepared: Preparation
    have: Held
    todo: tuple[Prompt, ...]
    refused: tuple[QuarantinedSample, ...]

    @property
    def n_made_before(self) -> int:
        return len(self.prepared.prompts) - len(self.todo)

    @property
    def nothing_to_do(self) -> bool:
        return not self.todo and not self.refused and self.have.version is not None


def run(config: RunConfig, worker_class: type[Worker] = Worker) -> RunSummary:
    """Make what is not made yet; `worker_class` is what lives in the actors.

    Raises `StrataError` with all problems when it cannot start, and `RunFailedError` when it stops by itself.
    """
    begun = time.monotonic()
    job = open_job(config)
    if job.nothing_to_do:
        return _summary(job, begun)
    audited = job.prepared.audited.names
    most = predict(config, job.prepared.schema, job.todo, at_most=True, audited=audited)
    check_room(config, most, job.prepared.door)
    n_tokens = sum(prompt.n_planned for prompt in job.todo)
    with Stopping() as stopping, open_reporter(len(job.todo), n_tokens) as reporter:
        if not job.todo:
            return _record_only(job, begun)
        fleet = Fleet(work_order(job), config.workers, config.ray, worker_class)
        try:
            reporter.say("fleet", f"loading {job.prepared.target.model_id}")
            workers = fleet.start(len(job.todo))
            stopping.arm()
            engine = greet(workers, job.prepared, job.config.engine, reporter)
            return _make(job, fleet, engine, reporter, stopping, begun)
        finally:
            fleet.close()


def open_job(config: RunConfig) -> Job:
    """Read the prompts and the dataset, and see what is left to make; nothing is written.

    Raises `StrataError` with what keeps a run from it: `prepare`'s, `held`'s, and `kept_audit`'s.
    """
    run_id = new_run_id()
    prepared = prepare(config, run_id)
    have = held(prepared.door, config.output.dataset, prepared.schema, prepared.provenance)
    todo = tuple(prompt for prompt in prepared.prompts if prompt.prompt_id not in have.made)
    if todo and config.audit.samples:
        kept_audit(prepared.door, config.output.dataset, prepared.schema)
    refused = tuple(
        row for row in prepared.quarantined if (row.source, row.prompt_id, row.reason) not in have.quarantined
    )
    return Job(config, run_id, prepared, have, todo, refused)


def made_before(job: Job) -> list[Prompt]:
    """Return the prompts of which the dataset holds samples."""
    left = {prompt.prompt_id for prompt in job.todo} | {named for _, named, _ in job.have.quarantined}
    return [prompt for prompt in job.prepared.prompts if prompt.prompt_id not in left]


def work_order(job: Job) -> WorkOrder:
    """Return what the workers of this run are told: places as every process on this host understands them."""
    return WorkOrder(
        root=absolute_root(job.config.output.root),
        dataset=job.config.output.dataset,
        run_id=job.run_id,
        schema=job.prepared.schema,
        engine=absolute_model(job.config.engine),
        batch_tokens=job.config.workers.batch_tokens,
        answering=answering_order(job),
        place=place_settings(),
    )


def answering_order(job: Job) -> AnsweringOrder | None:
    """Return how the workers' targets answer, `None` in capture mode."""
    generate, sampling = job.config.generate, job.prepared.sampling
    if generate is None or sampling is None:
        return None
    return AnsweringOrder(
        sampling=sampling,
        seed=generate.seed,
        batch=generate.batch,
        quarantine_truncated=generate.on_truncated == "quarantine",
        prompts=job.config.prompts,
    )


def _record_only(job: Job, begun: float) -> RunSummary:
    """Nothing is to be made, but something is to be recorded: prompts that cannot become samples."""
    ledger = _open_ledger(job)
    ledger.commit()
    return _end(job, ledger, {}, "complete", None, begun, 0.0)


def _open_ledger(job: Job) -> Ledger:
    dataset = Dataset.create(job.prepared.door, job.config.output.dataset, job.prepared.schema, exist_ok=True)
    dataset.write_run_start(
        RunStart(
            run_id=job.run_id,
            started_at=datetime.now(UTC),
            schema_fingerprint=job.prepared.schema.fingerprint,
            provenance=job.prepared.provenance,
            code_version=code_version(),
            host=platform.node(),
            packages=package_versions(),
            config=job.config.model_dump(mode="json"),
            resumes_version=job.have.version.number if job.have.version else None,
        )
    )
    ledger = Ledger(dataset, job.run_id, job.config.parts)
    ledger.add(None, job.refused)
    return ledger


def _make(
    job: Job, fleet: Fleet, engine: Mapping[str, str], reporter: Reporter, stopping: Stopping, begun: float
) -> RunSummary:
    schema = job.prepared.schema
    units = make_units(job.todo, schema.token_bytes, job.config.parts, fleet.n_workers)
    ledger = _open_ledger(job)
    making = time.monotonic()
    try:
        ledger.bound_by, ledger.proven_by = audit(job.config, job.prepared, fleet, job.run_id, reporter)
        kept = keep_norm_of_run(ledger.dataset, schema, job.config.engine)
        reporter.say("final norm", kept)
        making = time.monotonic()
        fleet.try_with(made_before(job), job.todo)
        schedule = Schedule(units, job.config.workers.unit_attempts)
        Loop(
            job.config.workers,
            job.run_id,
            fleet,
            schedule,
            ledger,
            reporter,
            stopping,
            answering=job.prepared.sampling is not None,
        ).work()
        ledger.commit()
    except StrataError as error:
        ledger.commit()
        _end(job, ledger, engine, "failed", error.headline, begun, time.monotonic() - making)
        raise
    outcome: Outcome = "interrupted" if stopping.requested else "complete"
    return _end(job, ledger, engine, outcome, stopping.signal_name, begun, time.monotonic() - making)


def _end(
    job: Job,
    ledger: Ledger,
    engine: Mapping[str, str],
    outcome: Outcome,
    reason: str | None,
    begun: float,
    making_seconds: float,
) -> RunSummary:
    summary = replace(
        _summary(job, begun),
        outcome=outcome,
        version=ledger.version_number,
        n_samples=ledger.n_samples,
        n_tokens=ledger.n_tokens,
        size_bytes=ledger.size_bytes,
        quarantined=dict(ledger.reasons),
        making_seconds=making_seconds,
        binding=ledger.bound_by,
        bound=ledger.binding.bound + ledger.binding.again,
        unbound=ledger.binding.unbound,
        on_policy_counts=ledger.on_policy,
    )
    ledger.dataset.write_run_checks(
        RunChecks(
            run_id=job.run_id,
            made_at=datetime.now(UTC),
            binding=ledger.bound_by,
            n_bound=ledger.binding.bound,
            n_again=ledger.binding.again,
            n_unbound=ledger.binding.unbound,
            **asdict(ledger.on_policy),
            engine=dict(engine),
            proven_by=ledger.proven_by,
        )
    )
    ledger.write_end(outcome, reason, summary.seconds)
    return summary


def _summary(job: Job, begun: float) -> RunSummary:
    output = job.config.output
    return RunSummary(
        run_id=job.run_id,
        dataset=f"{output.root.rstrip('/')}/{output.dataset}",
        outcome="complete",
        version=job.have.version.number if job.have.version else None,
        n_samples=0,
        n_tokens=0,
        size_bytes=0,
        quarantined={},
        prompts_read=job.prepared.stats.read,
        already_made=job.n_made_before,
        already_quarantined=len(job.prepared.quarantined) - len(job.refused),
        duplicates=job.prepared.stats.duplicates,
        seconds=time.monotonic() - begun,
        making_seconds=0.0,
    )
