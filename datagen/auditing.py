"""Makes the audit set before a run's first part, or takes the one there is; and calibrates the workers."""

from datagen.audit import MIN_AGREEMENT, AuditReading, audit_name, audit_schema, audit_unit, read_audit
from datagen.config import RunConfig
from datagen.errors import RunFailedError
from datagen.fleet import Fleet
from datagen.preparation import Preparation
from datagen.progress import Reporter
from datagen.store.dataset import Dataset
from datagen.worker import AuditResult
from schemas.problem import Problem


def audit(
    config: RunConfig, prepared: Preparation, fleet: Fleet, run_id: str, reporter: Reporter
) -> AuditReading | None:
    """Make what is missing of the audit set, commit it, and hand its norm profiles to every worker.

    Raises `RunFailedError` when the head on the stored `final` does not choose as the engine did.
    """
    if not config.audit.samples:
        return None
    name = audit_name(config.output.dataset)
    schema = audit_schema(prepared.target, config.tensors.dtype)
    dataset = Dataset.create(prepared.door, name, schema, exist_ok=True)
    seen: frozenset[str] = frozenset()
    if dataset.latest() is not None:
        seen = frozenset(dataset.snapshot().index.prompt_ids())
    unit = audit_unit(prepared.prompts, config.audit.samples, config.audit.max_tokens, seen)
    if unit.prompts and len(seen) < config.audit.samples:
        reporter.say("audit", f"capturing {len(unit.prompts)} samples with every boundary")
        made: AuditResult = fleet.call_first("audit", name, schema, unit)
        _check(made)
        parts = [made.result.part] if made.result.part is not None else []
        dataset.commit(parts, made.result.quarantined, run_id=run_id)
    reading = read_audit(dataset.snapshot())
    fleet.calibrate(reading.profiles)
    return reading


def _check(made: AuditResult) -> None:
    agreement = made.agreeing / made.positions if made.positions else 0.0
    if agreement < MIN_AGREEMENT:
        message = (
            "expected argmax(lm_head(norm(final))) to be the engine's own choice on at least "
            f"{MIN_AGREEMENT:.0%} of the positions, got {made.agreeing} of {made.positions} ({agreement:.1%})"
        )
        problem = Problem(
            where="final", kind="audit", message=message, repair="`final` is not what it should be"
        )
        raise RunFailedError("the audit set does not hold", [problem])
