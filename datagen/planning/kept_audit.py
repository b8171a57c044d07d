"""The audit set that a dataset has already, and whether a run may go by it."""

from datagen.errors import ResumeError
from datagen.planning.audit import audit_name
from datagen.store.dataset import Dataset
from datagen.store.door import Door
from datagen.store.errors import NotFoundError
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.schema import Schema


def kept_audit(door: Door, dataset: str, schema: Schema) -> Snapshot | None:
    """Return the audit set of a dataset of `schema`, `None` where it has none yet.

    Raises `ResumeError` where the one that is there is of another target or dtype, or lacks a tensor of the
    dataset: nothing could be said by it.
    """
    name = audit_name(dataset)
    try:
        found = Dataset.open(door, name)
    except NotFoundError:
        return None
    if found.latest() is None:
        return None
    snapshot = found.snapshot()
    kept = snapshot.schema
    problems = list(identity_differences("target", schema.target.identity(), kept.target.identity()))
    dtype, its = schema.tensors[0].dtype, kept.tensors[0].dtype
    if dtype != its:
        problems.append(
            Problem(where="tensors.dtype", kind="audit", message=f"expected {its} as there, got {dtype}")
        )
    if lacking := [one for one in schema.names if one not in kept.names]:
        message = f"expected an audit set with {', '.join(lacking)}, got one of {', '.join(kept.names)}"
        problems.append(Problem(where=name, kind="audit", message=message))
    if problems:
        repair = f"it is of another run: remove {door.url}/{name}, or choose another output.dataset"
        told = [one if one.repair else one.model_copy(update={"repair": repair}) for one in problems]
        raise ResumeError(f"{name} is not of this dataset: this run cannot go by it", told)
    return snapshot
