"""The final norm that is kept beside a dataset's schema: created once, checked to be its target's."""

from datagen.store.damage import corrupt
from datagen.store.door import Door
from datagen.store.errors import AlreadyExistsError, ConflictError, NotFoundError
from datagen.store.layout import Layout
from datagen.store.record_files import create_record, read_record
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.schema import Schema

_REPAIR = "keep it again from the model: remove this file, then `strata norm`"


def read_final_norm(door: Door, layout: Layout, schema: Schema) -> FinalNorm | None:
    """Return the norm that is kept of a schema's target, `None` where there is none.

    Raises `CorruptError` where the file is damaged, or is another target's.
    """
    key = layout.final_norm(schema.fingerprint)
    try:
        norm = read_record(FinalNorm, door, key)
    except NotFoundError:
        return None  # made by an engine without the model's files, or before norms were kept
    if problems := norm.problems(schema.target):
        told = "; ".join(f"{problem.where}: {problem.message}" for problem in problems)
        raise corrupt(key, "target", told, _REPAIR)
    return norm


def keep_final_norm(door: Door, layout: Layout, schema: Schema, norm: FinalNorm) -> bool:
    """Keep the norm of a schema's target, durable; return whether it is new.

    Raises `ConflictError` where it is another target's, or another one is kept already.
    """
    if problems := norm.problems(schema.target):
        raise ConflictError(f"this is not the final norm of {layout.name}'s target", problems)
    there = read_final_norm(door, layout, schema)
    if there is None:
        try:
            create_record(door, layout.final_norm(schema.fingerprint), norm)
            return True
        except AlreadyExistsError:
            there = read_final_norm(door, layout, schema)
    if there is None or there.content != norm.content:
        message = f"expected the norm that is kept ({there.recipe if there else 'none'}), got {norm.recipe}"
        problem = Problem(where=layout.final_norm(schema.fingerprint), kind="final_norm", message=message)
        raise ConflictError(f"{layout.name} keeps another final norm", [problem])
    return False
