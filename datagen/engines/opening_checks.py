"""Whether an engine may hand out the tensors of a schema: the same target, and nothing to cast."""

from schemas.problem import Problem
from schemas.provenance import identity_differences
from schemas.schema import DType, Schema
from schemas.target import Target


def schema_problems(schema: Schema, target: Target, dtype: DType) -> list[Problem]:
    """Return what keeps `target`, computed in `dtype`, from handing out the tensors of `schema`."""
    problems = [
        Problem(
            where=spec.name,
            kind="dtype",
            message=f"expected {spec.dtype} as in the schema, got an engine that computes in {dtype}",
            repair="set engine.dtype to the schema's: nothing is cast",
        )
        for spec in schema.tensors
        if spec.dtype != dtype
    ]
    return problems + list(identity_differences("target", target.identity(), schema.target.identity()))
