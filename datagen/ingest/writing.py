"""The samples of an ingest become parts, several at once, and the parts versions; a stop leaves whole ones.

A sample is read again for this, its states' bytes for the first time. What it turns out to be now (NaN, other
ids than a moment ago) refuses that sample by name, never its part.
"""

import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime

from datagen.adapters.errors import ForeignFileError
from datagen.code_version import code_version, package_versions
from datagen.config import PartSettings
from datagen.driver.ledger import Ledger
from datagen.errors import SpaceError
from datagen.ingest.facts import Facts, Refusal, facts_of, stamp_of
from datagen.ingest.looking import refusal_of
from datagen.ingest.plan import IngestPlan, settings_of
from datagen.ingest.proven_norms import norm_problems
from datagen.ingest.samples import sample_data, state_problems
from datagen.kept_norm import keep_norm_of_run
from datagen.planning.places import is_url
from datagen.printing import printable
from datagen.run_ids import new_run_id
from datagen.stopping import Stopping
from datagen.store.closed_part import ClosedPart
from datagen.store.dataset import Dataset
from datagen.store.errors import RefusedError
from datagen.store.failures import free_bytes, write_problems
from datagen.store.part import PartWriter
from schemas.errors import StrataError
from schemas.problem import Problem
from schemas.records import Outcome, QuarantinedSample, QuarantineReason, RunStart

PARTS_A_WORKER = 4
_EXTRA = 1.02
"""Beside the states: checksums, norms and ids."""


@dataclass(frozen=True)
class Ingested:
    """What came of an ingest; `quarantined` counts by reason those that were recorded as not brought in."""

    run_id: str
    outcome: Outcome
    version: int | None
    n_samples: int
    n_tokens: int
    size_bytes: int
    quarantined: dict[str, int]
    refused: tuple[Refusal, ...]
    final_norm: str
    """Whether the target's final norm is kept with the dataset, or why not."""
    seconds: float


@dataclass
class _Part:
    """What came of one part's samples."""

    part: ClosedPart | None
    refused: list[Refusal] = field(default_factory=list)


def write(
    plan: IngestPlan,
    workers: int,
    stopping: Stopping,
    parts: PartSettings | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Ingested:
    """Write what was planned; `on_progress` is told bytes done and bytes in all.

    Where `stopping` was asked for, the parts in hand are closed as they are and committed: the same ingest
    goes on from there. Raises `SpaceError` before a byte where there is no room, and `StoreError` where the
    place fails; what was committed until then stays.
    """
    begun = time.monotonic()
    check_room(plan)
    settings = parts or PartSettings()
    writing = _Writing(plan, new_run_id(), stopping, settings, on_progress)
    ledger = writing.open_ledger()
    outcome: Outcome = "complete"
    reason: str | None = None
    try:
        writing.make_all(ledger, workers)
        ledger.commit()
        if stopping.requested:
            outcome, reason = "interrupted", stopping.signal_name
    except StrataError as error:
        ledger.commit()
        _end(ledger, writing, "failed", error.headline, begun)
        raise
    return _end(ledger, writing, outcome, reason, begun)


def check_room(plan: IngestPlan) -> None:
    """Raise `SpaceError` when what is to be written cannot be, or does not fit."""
    root = plan.opened.reference.root
    if is_url(root):
        return
    problems = write_problems(root)
    needed = int(plan.payload_bytes * _EXTRA)
    if not problems and needed > (free := free_bytes(root)):
        message = f"expected {needed:,} bytes free, got {free:,}"
        repair = "free space, or give another root"
        problems.append(Problem(where=root, kind="space", message=message, repair=repair))
    if problems:
        raise SpaceError("the dataset cannot be written", problems)


class _Writing:
    """One ingest at work."""

    def __init__(
        self,
        plan: IngestPlan,
        run_id: str,
        stopping: Stopping,
        settings: PartSettings,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self.plan = plan
        self.run_id = run_id
        self.refused: list[Refusal] = list(plan.looked.refused)
        self.final_norm = "not kept: no model was given"
        proven = plan.proof.slots if plan.proof else ()
        self._spans = {label: slot.span for label, slot in zip(plan.labels, proven, strict=False)}
        self._stopping = stopping
        self._settings = settings
        self._on_progress = on_progress
        self._done_bytes = 0
        self._given_up = False
        self._lock = threading.Lock()

    def open_ledger(self) -> Ledger:
        """Make the dataset and the run's record; what a look refused is the first to be recorded."""
        plan = self.plan
        dataset = Dataset.create(plan.opened.door, plan.opened.reference.dataset, plan.schema, exist_ok=True)
        dataset.write_run_start(
            RunStart(
                run_id=self.run_id,
                started_at=datetime.now(UTC),
                schema_fingerprint=plan.schema.fingerprint,
                provenance=plan.provenance,
                code_version=code_version(),
                host=platform.node(),
                packages=package_versions(),
                config=config_of(plan),
                resumes_version=plan.held.version.number if plan.held.version else None,
            )
        )
        if plan.asked.target is not None:
            self.final_norm = keep_norm_of_run(dataset, plan.schema, settings_of(plan.asked))
        ledger = Ledger(dataset, self.run_id, self._settings)
        ledger.add(None, [self.quarantined(one) for one in plan.looked.refused])
        return ledger

    def make_all(self, ledger: Ledger, workers: int) -> None:
        """Make every part, and commit those that are whole when it is time."""
        waiting = iter(parts_of(self.plan, self._settings, workers))
        pending: set[Future[_Part]] = set()
        with ThreadPoolExecutor(workers, "ingest") as pool:
            try:
                while True:
                    while len(pending) < workers and (facts := next(waiting, None)) is not None:
                        pending.add(pool.submit(self._make, facts))
                    if not pending:
                        return
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        made = future.result()
                        self.refused += made.refused
                        ledger.add(made.part, [self.quarantined(one) for one in made.refused])
                    if ledger.due():
                        ledger.commit()
                    if self._stopping.requested:
                        waiting = iter(())
            except BaseException:
                self._given_up = True
                raise

    def _make(self, facts: Sequence[Facts]) -> _Part:
        plan, refused = self.plan, list[Refusal]()
        with PartWriter(
            plan.opened.door, plan.opened.reference.dataset, plan.schema, self.run_id, threads=1
        ) as writer:
            for one in facts:
                if self._given_up:
                    return _Part(None)
                if self._stopping.requested:
                    break
                if (wrong := self._add(writer, one)) is not None:
                    refused.append(wrong)
                self._step(one)
            return _Part(writer.close() if writer.n_samples else None, refused)

    def _add(self, writer: PartWriter, facts: Facts) -> Refusal | None:
        plan = self.plan
        try:
            row = plan.opened.files.read(facts.listed)
            stamp = stamp_of(facts.listed.path)
        except ForeignFileError as error:
            return refusal_of(facts.listed, error)
        now = facts_of(facts.listed, row, stamp, plan.opened.target, all_trained=plan.all_trained)
        if isinstance(now, Refusal):
            return now
        if now != facts:
            message = "expected the file as it was looked at, got another one: it changed meanwhile"
            return _refusal(facts, "wrong_content", [Problem(where="file", kind="changed", message=message)])
        if (changed := plan.opened.beside.sums.problem(facts.listed.path)) is not None:
            return _refusal(facts, "wrong_content", [changed])
        sample = sample_data(plan, facts, row)
        # Of rows that are no states a norm says nothing more.
        problems = [*state_problems(sample)] or [*norm_problems(sample.norms, self._spans)]
        if not problems:
            try:
                writer.add(sample)
            except RefusedError as error:
                problems = list(error.problems)
        if not problems:
            return None
        kinds = {problem.kind for problem in problems}
        return _refusal(facts, "non_finite" if kinds == {"non_finite"} else "wrong_content", problems)

    def _step(self, facts: Facts) -> None:
        with self._lock:
            self._done_bytes += facts.n_tokens * self.plan.schema.token_bytes
            self._on_progress(self._done_bytes, self.plan.payload_bytes)

    def quarantined(self, refusal: Refusal) -> QuarantinedSample:
        """Return the record of a sample that was not brought in."""
        known = refusal.sample_id
        said = self.plan.opened.beside.conversations.get(known or "", refusal.conversation_id)
        return QuarantinedSample(
            source=printable(refusal.listed.name),
            reason=refusal.reason,
            detail=printable("; ".join(map(str, refusal.problems))),
            run_id=self.run_id,
            conversation_id=None if said is None else printable(said),
            sample_id=known,
        )


def _refusal(facts: Facts, reason: QuarantineReason, problems: Sequence[Problem]) -> Refusal:
    return Refusal(facts.listed, reason, tuple(problems), facts.sample_id, facts.conversation_id)


def parts_of(plan: IngestPlan, settings: PartSettings, workers: int) -> Iterator[list[Facts]]:
    """Yield the samples of each part, in the files' own order: neighbours are read together.

    A part is full, or as large as lets every worker have several.
    """
    fresh, token_bytes = plan.looked.fresh, plan.schema.token_bytes
    share = -(-plan.payload_bytes // (workers * PARTS_A_WORKER))
    most = min(settings.max_bytes, max(share, settings.max_bytes // 64))
    group: list[Facts] = []
    size = 0
    for facts in fresh:
        here = facts.n_tokens * token_bytes
        if group and (size + here > most or len(group) >= settings.max_samples):
            yield group
            group, size = [], 0
        group.append(facts)
        size += here
    if group:
        yield group


def config_of(plan: IngestPlan) -> dict[str, object]:
    """Return what the run's record says of where the samples came from, and of the proof of their names."""
    asked = plan.asked
    return {
        "ingest": {
            "format": asked.format,
            "files": [str(path) for path in asked.files],
            "n_files": len(plan.opened.files.samples),
            "labels": dict(zip([slot.name for slot in plan.slots], plan.labels, strict=True)),
            "labels_said_by": plan.said_by,
            "target": asked.target,
            "masks": None if asked.masks is None else str(asked.masks),
            "dequantise": asked.dequantise,
            "padding": asked.padding,
            "proof": plan.proof.as_data() if plan.proof else None,
            "notes": [str(problem) for problem in plan.notes],
        }
    }


def _end(ledger: Ledger, writing: _Writing, outcome: Outcome, reason: str | None, begun: float) -> Ingested:
    seconds = time.monotonic() - begun
    ledger.write_end(outcome, reason, seconds)
    return Ingested(
        run_id=writing.run_id,
        outcome=outcome,
        version=ledger.version_number,
        n_samples=ledger.n_samples,
        n_tokens=ledger.n_tokens,
        size_bytes=ledger.size_bytes,
        quarantined=dict(ledger.reasons),
        refused=tuple(writing.refused),
        final_norm=writing.final_norm,
        seconds=seconds,
    )
