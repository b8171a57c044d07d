"""What a version is: its schema, in words and as a JSON Schema of a sample, and its figures."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from datagen.store.errors import NotFoundError
from schemas.boundary import NormState
from schemas.final_norm import FinalNorm, derivable
from schemas.problem import Problem
from schemas.schema import Schema, TensorSpec, TokenColumn
from schemas.target import Target
from service.access.auth import Caller, requires
from service.asked.versioned import PREFIX, Served, Version
from service.served.statistics import Statistics, statistics_of

router = APIRouter(prefix=PREFIX, tags=["versions"])
Reader = Annotated[Caller, requires("read")]
JSON_SCHEMA_TYPE = "application/schema+json"


class TensorAnswer(BaseModel):
    """A hidden tensor: `[token, width]`, unpadded, unshifted; row `i` is token `i`'s."""

    name: str
    boundary: int
    norm: NormState
    dtype: str
    width: int
    row_bytes: int


class ColumnAnswer(BaseModel):
    """A value a token: `[token]`."""

    name: str
    dtype: str
    row_bytes: int


class SchemaAnswer(BaseModel):
    """The target, and every tensor and token column by name."""

    dataset: str
    dataset_id: str
    version: int
    fingerprint: str
    target: Target
    tensors: list[TensorAnswer]
    token_columns: list[ColumnAnswer]
    token_bytes: int
    derivable: list[str]
    """What is not stored and can be made of what is: `final_normed`, by the norm that `final_norm` tells."""
    declared: Schema
    """The same as the record that the fingerprint is taken of."""


@router.get(
    "/schema",
    response_model=SchemaAnswer,
    responses={
        200: {"content": {JSON_SCHEMA_TYPE: {"schema": {"type": "object"}}}},
    },
)
def get_schema(
    caller: Reader,
    served: Version,
    format: Annotated[
        Literal["strata", "json-schema"], Query(description="`json-schema`: a JSON Schema of one sample")
    ] = "strata",
) -> SchemaAnswer | JSONResponse:
    """Say which tensors there are: boundary, norm state, dtype and width of each, and the fingerprint."""
    schema = served.snapshot.schema
    if format == "json-schema":
        return JSONResponse(sample_schema(served), headers=served.headers, media_type=JSON_SCHEMA_TYPE)
    return SchemaAnswer(
        dataset=served.dataset,
        dataset_id=served.snapshot.version.dataset_id,
        version=served.number,
        fingerprint=served.snapshot.version.schema_fingerprint,
        target=schema.target,
        tensors=[TensorAnswer(**spec.model_dump(), row_bytes=spec.row_bytes) for spec in schema.tensors],
        token_columns=[
            ColumnAnswer(**column.model_dump(), row_bytes=column.row_bytes) for column in schema.token_columns
        ],
        token_bytes=schema.token_bytes,
        derivable=[*derivable(schema, served.snapshot.final_norm())],
        declared=schema,
    )


@router.get("/final_norm", responses={404: {}})
def get_final_norm(caller: Reader, served: Version) -> FinalNorm:
    """Tell the target's final norm, which makes `final_normed` of `final` where that is not stored."""
    norm = served.snapshot.final_norm()
    if norm is None:
        message = (
            f"expected the final norm of {served.snapshot.schema.target.model_id}, got none: it is not kept"
        )
        repair = "`strata norm --dataset ROOT/DATASET --target-model MODEL` keeps it"
        problem = Problem(where="final_norm", kind="final_norm", message=message, repair=repair)
        raise NotFoundError(f"{served.dataset} has no final norm", [problem])
    return norm


@router.get("/stats")
def get_stats(caller: Reader, served: Version) -> Statistics:
    """Give a version's figures: counts, bytes, lengths, norms by tensor, and what was not made and why."""
    return statistics_of(served.snapshot)


def sample_schema(served: Served) -> dict[str, Any]:
    """Return a JSON Schema (2020-12) of one sample as JSON would write it: rows of numbers by tensor name."""
    schema = served.snapshot.schema
    arrays = {spec.name: _tensor(spec) for spec in schema.tensors}
    arrays |= {column.name: _column(column, schema.target.vocab_size) for column in schema.token_columns}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:strata:schema:{served.snapshot.version.schema_fingerprint}",
        "title": f"a sample of {served.dataset}",
        "description": f"hidden states of {schema.target.model_id}, by name; all arrays have one row a token",
        "type": "object",
        "properties": arrays,
        "required": list(arrays),
        "additionalProperties": False,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    row = {"type": "array", "items": {"type": "number"}, "minItems": spec.width, "maxItems": spec.width}
    return {
        "description": f"boundary {spec.boundary}, {spec.norm}",
        "type": "array",
        "items": row,
        "minItems": 1,
        "x-strata": {"boundary": spec.boundary, "norm": spec.norm, "dtype": spec.dtype, "width": spec.width},
    }


def _column(column: TokenColumn, vocab_size: int) -> dict[str, Any]:
    top = vocab_size - 1 if column.dtype == "int32" else 255
    return {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": top},
        "minItems": 1,
        "x-strata": {"dtype": column.dtype},
    }
