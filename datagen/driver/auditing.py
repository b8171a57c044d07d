"""Makes the audit set before a run's first part, or takes the one there is; and calibrates the workers."""

from datetime import UTC, datetime

from datagen.config import RunConfig
from datagen.driver.fleet import Fleet
from datagen.errors import RunFailedError
from datagen.planning.audit import (
    MIN_AGREEMENT,
    audit_name,
    audit_schema,
    audit_unit,
    in_words,
    read_audit,
    read_calibration,
)
from datagen.planning.preparation import Preparation
from datagen.progress import Reporter
from datagen.store.dataset import Dataset
from datagen.worker.proving import AuditResult
from schemas.calibration import CalibrationRecord
from schemas.problem import Problem


def audit(config: RunConfig, prepared: Preparation, fleet: Fleet, run_id: str, reporter: Reporter) -> str:
    """Make what is missing of the audit set, commit it, and hand what it says to every worker.

    Returns what binds samples to their ids from now on, in words.

    Raises `RunFailedError` when the head on the stored `final` does not choose as the engine did, or when a
    tensor is not the witness's.
    """
    if not config.audit.samples:
        return "by nothing (no audit set was asked for)"
    name = audit_name(config.output.dataset)
    schema = audit_schema(prepared.target, config.tensors.dtype)
    dataset = Dataset.create(prepared.door, name, schema, exist_ok=True)
    seen: frozenset[str] = frozenset()
    if dataset.latest() is not None:
        seen = frozenset(dataset.snapshot().index.prompt_ids())
    unit = audit_unit(prepared.prompts, config.audit.samples, config.audit.max_tokens, seen)
    if unit.prompts and len(seen) < config.audit.samples:
        reporter.say("audit", f"capturing {len(unit.prompts)} samples with every boundary")
        made: AuditResult = fleet.call_first("audit", name, schema, unit, config.audit.reference)
        _check(made)
        parts = [made.result.part] if made.result.part is not None else []
        dataset.commit(parts, made.result.quarantined, run_id=run_id)
        if parts:
            record = _record(made, run_id)
            dataset.write_calibration(record)
            reporter.say("audit", in_words(record), witness=record.witness)
    snapshot = dataset.snapshot()
    reading = read_audit(snapshot)
    bound_by = fleet.calibrate(read_calibration(snapshot, reading))
    reporter.say("audit", f"samples are bound to their token ids {bound_by}")
    return bound_by


def _check(made: AuditResult) -> None:
    problems = list(made.problems)
    if made.result.part is None:
        problems += [
            Problem(where="audit", kind=row.reason, message=row.detail) for row in made.result.quarantined
        ]
    untied = made.positions - made.tied
    agreement = made.agreeing / untied if untied else float(made.positions > 0)
    if agreement < MIN_AGREEMENT:
        message = (
            "expected argmax(lm_head(norm(final))) to be the engine's own choice on at least "
            f"{MIN_AGREEMENT:.0%} of the positions without a tie, got {made.agreeing} of {untied} "
            f"({agreement:.1%})"
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
