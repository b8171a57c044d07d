"""Makes the audit set before a run's first part, or holds the engine against the one there is; calibrates.

Either way the engine that is loaded now is proven, as far as the set goes, before anything is made.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from datagen.config import RunConfig
from datagen.driver.fleet import Fleet
from datagen.errors import RunFailedError
from datagen.planning.audit import (
    MIN_AGREEMENT,
    audit_name,
    audit_schema,
    audit_unit,
    errors_in_words,
    in_words,
    read_audit,
    read_calibration,
)
from datagen.planning.audit_names import NO_AUDIT, AuditNames, lacking_of, shortened
from datagen.planning.kept_audit import kept_audit
from datagen.planning.preparation import Preparation
from datagen.planning.units import Unit
from datagen.progress import Reporter
from datagen.store.dataset import Dataset
from datagen.store.snapshot import Snapshot
from datagen.worker.proving import AuditResult, HeldAgain
from schemas.calibration import CalibrationRecord
from schemas.problem import Problem
from schemas.schema import Schema


class Audited(NamedTuple):
    """What an audit said, for the run's record: what binds samples to their ids, what proved the engine."""

    bound_by: str
    proven_by: str


def audit(config: RunConfig, prepared: Preparation, fleet: Fleet, run_id: str, reporter: Reporter) -> Audited:
    """Make what is missing of the audit set, commit it, and hand what it says to every worker.

    Raises `RunFailedError` when the head on the stored `final` does not choose as the engine did, or when a
    tensor is not the witness's, or not the one that the audit set has.
    """
    if not config.audit.samples:
        reporter.say("audit", NO_AUDIT)
        return Audited("by nothing (no audit set was asked for)", NO_AUDIT)
    told = []
    kept = kept_audit(prepared.door, config.output.dataset, prepared.schema)
    if kept is not None:
        told.append(_hold(kept, config, prepared.audited, fleet, reporter))
    seen = frozenset[str]() if kept is None else frozenset(kept.index.prompt_ids())
    unit = audit_unit(prepared.prompts, config.audit.samples, config.audit.max_tokens, seen)
    if unit.prompts and len(seen) < config.audit.samples:
        given = prepared.audited
        if kept is not None and set(kept.schema.names) < set(given.names):
            given = AuditNames(kept.schema.names, lacking_of(kept.schema), "as the samples that are there")
        schema = audit_schema(prepared.target, config.tensors.dtype, given.names)
        if kept is not None and kept.schema.names != schema.names:
            reporter.say("audit", f"no sample is added to the audit set: the engine gives {given.said}")
        else:
            dataset = Dataset.create(prepared.door, audit_name(config.output.dataset), schema, exist_ok=True)
            told.append(_make(dataset, schema, given, unit, config, fleet, run_id, reporter))
    snapshot = Dataset.open(prepared.door, audit_name(config.output.dataset)).snapshot()
    reading = read_audit(snapshot)
    bound_by = fleet.calibrate(read_calibration(snapshot, reading))
    reporter.say("audit", f"samples are bound to their token ids {bound_by}")
    return Audited(bound_by, "; ".join(told))


def _make(
    dataset: Dataset,
    schema: Schema,
    given: AuditNames,
    unit: Unit,
    config: RunConfig,
    fleet: Fleet,
    run_id: str,
    reporter: Reporter,
) -> str:
    """Capture samples of an audit set, prove and commit them; return what proved them, in words."""
    has = f"{len(unit.prompts)} samples with {given.said}"
    reporter.say("audit", f"capturing {has}", lacking=given.lacking)
    made: AuditResult = fleet.call_first("audit", dataset.name, schema, unit, config.audit.reference)
    _check(made)
    parts = [made.result.part] if made.result.part is not None else []
    dataset.commit(parts, made.result.quarantined, run_id=run_id)
    if not parts:
        return "no sample of the audit set could be made"
    record = _record(made, run_id)
    dataset.write_calibration(record)
    reporter.say("audit", in_words(record), witness=record.witness)
    return f"{has}, {in_words(record)}"


def _hold(kept: Snapshot, config: RunConfig, given: AuditNames, fleet: Fleet, reporter: Reporter) -> str:
    """Hold the engine against the audit set that is there; return how near it is, in words."""
    names = tuple(name for name in kept.schema.names if name in given.names)
    schema = audit_schema(kept.schema.target, config.tensors.dtype, names)
    name = audit_name(config.output.dataset)
    number, reference = kept.version.number, config.audit.reference
    held: HeldAgain = fleet.call_first("prove_again", name, number, schema, reference)
    if held.problems:
        raise RunFailedError("the engine does not give what the audit set has", held.problems)
    lacking = tuple(name for name in kept.schema.names if name not in names)
    without = f", without {shortened(lacking)}, which the engine does not give" if lacking else ""
    said = f"against the {len(kept)} samples that {name} had{without}: {errors_in_words(held.tensors)}"
    reporter.say("audit", f"the engine holds {said}")
    return said


def _check(made: AuditResult) -> None:
    problems = list(made.problems)
    if made.result.part is None:
        problems += [
            Problem(where="audit", kind=row.reason, message=row.detail) for row in made.result.quarantined
        ]
    untied = made.positions - made.tied
    if untied and made.agreeing < MIN_AGREEMENT * untied:
        message = (
            "expected argmax(lm_head(norm(final))) to be the engine's own choice on at least "
            f"{MIN_AGREEMENT:.0%} of the positions without a tie, got {made.agreeing} of {untied} "
            f"({made.agreeing / untied:.1%})"
        )
        problems.append(
            Problem(where="final", kind="audit", message=message, repair="`final` is not what it should be")
        )
    if problems:
        raise RunFailedError("the audit set does not hold", problems)


def _record(made: AuditResult, run_id: str) -> CalibrationRecord:
    return CalibrationRecord(
        run_id=run_id,
        made_at=datetime.now(UTC),
        witness=made.witness,
        n_tokens=made.result.n_tokens,
        positions=made.positions,
        tied=made.tied,
        agreeing=made.agreeing,
        tensors=made.tensors,
    )
