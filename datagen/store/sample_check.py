"""What a sample must be before a byte of it is written: exactly what the schema says, nothing converted.

zarr and numpy would cast, broadcast and clip without a word; here each of these is a problem with a name.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from datagen.store.checksum import Scan
from datagen.store.dtypes import dtype_name
from datagen.store.sample_data import SampleData
from schemas.problem import Problem
from schemas.sample import ID_PATTERN, sample_id
from schemas.schema import Schema, TensorFacts


def facts_of(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, TensorFacts]:
    """Return dtype and shape of each array."""
    return {name: TensorFacts(dtype_name(array.dtype), array.shape) for name, array in arrays.items()}


def sample_problems(sample: SampleData, schema: Schema) -> list[Problem]:
    """Return every way in which `sample` departs from `schema`, the values of its tensors left out."""
    problems = list(_column_problems(sample, schema))
    ids = sample.tokens.get("input_ids")
    if ids is None or ids.ndim != 1 or len(ids) == 0:
        return problems
    n_tokens = len(ids)
    problems += schema.problems(n_tokens, facts_of(sample.tensors))
    problems += _layout_problems(sample)
    problems += _norm_problems(sample, schema, n_tokens)
    problems += _identity_problems(sample, ids)
    return problems


def scan_problems(scans: Mapping[str, Scan]) -> Iterator[Problem]:
    """Yield each tensor that holds NaN or Inf, with the tokens."""
    for name, scan in scans.items():
        if len(scan.not_finite):
            tokens = ", ".join(str(token) for token in scan.not_finite[:5])
            more = ", ..." if len(scan.not_finite) > 5 else ""
            rows = f"{len(scan.not_finite)} rows (tokens {tokens}{more})"
            message = f"expected finite values, got NaN or Inf in {rows}"
            yield Problem(where=name, kind="non_finite", message=message)


def _column_problems(sample: SampleData, schema: Schema) -> Iterator[Problem]:
    columns = {column.name: column for column in schema.token_columns}
    facts = facts_of(sample.tokens)
    n_tokens = len(sample.tokens["input_ids"].reshape(-1)) if "input_ids" in sample.tokens else None
    if n_tokens == 0:
        yield Problem(where="input_ids", kind="empty", message="expected at least one token, got none")
    for name, column in columns.items():
        if name not in facts:
            yield Problem(
                where=name, kind="missing", message=f"expected {column.dtype}[token], got no such column"
            )
            continue
        dtype, shape = facts[name]
        if dtype != column.dtype:
            yield Problem(where=name, kind="dtype", message=f"expected {column.dtype}, got {dtype}")
        if n_tokens is not None and shape != (n_tokens,):
            yield Problem(where=name, kind="shape", message=f"expected {(n_tokens,)}, got {shape}")
    for name in facts:
        if name not in columns:
            message = f"expected only {', '.join(columns)}, got {name!r} too"
            yield Problem(where=name, kind="undeclared", message=message)


def _layout_problems(sample: SampleData) -> Iterator[Problem]:
    for name, array in sample.tensors.items():
        if not array.flags.c_contiguous:
            message = f"expected C-contiguous rows, got strides {array.strides}"
            yield Problem(
                where=name, kind="layout", message=message, repair="hand in numpy.ascontiguousarray(...)"
            )


def _norm_problems(sample: SampleData, schema: Schema, n_tokens: int) -> Iterator[Problem]:
    facts = facts_of(sample.norms)
    for name in schema.names:
        where = f"norms.{name}"
        if name not in facts:
            yield Problem(where=where, kind="missing", message="expected float32[token], got none")
        elif facts[name] != ("float32", (n_tokens,)):
            message = f"expected float32 {(n_tokens,)}, got {facts[name].dtype} {facts[name].shape}"
            yield Problem(where=where, kind="shape", message=message)
        elif not np.isfinite(sample.norms[name]).all():
            yield Problem(where=where, kind="non_finite", message="expected finite norms, got NaN or Inf")
    for name in facts:
        if name not in schema.names:
            message = f"expected only {', '.join(schema.names)}, got {name!r} too"
            yield Problem(where=f"norms.{name}", kind="undeclared", message=message)


def _identity_problems(sample: SampleData, ids: NDArray[np.generic]) -> Iterator[Problem]:
    if not re.fullmatch(ID_PATTERN, sample.prompt_id):
        yield Problem(
            where="prompt_id", kind="id", message=f"expected 64 hex digits, got {sample.prompt_id!r}"
        )
    if ids.dtype == np.int32:
        if (lowest := int(ids.min())) < 0:
            message = f"expected token ids from 0, got {lowest}"
            yield Problem(where="input_ids", kind="token_id", message=message)
        elif sample.sample_id != (expected := sample_id(ids.tolist())):
            yield Problem(
                where="sample_id",
                kind="identity",
                message=f"expected {expected}, the hash of input_ids, got {sample.sample_id!r}",
                repair="the token ids are not those that were asked for, or not those of this sample",
            )
    mask = sample.tokens.get("loss_mask")
    if mask is not None and mask.dtype == np.uint8 and mask.size and int(mask.max()) > 1:
        yield Problem(where="loss_mask", kind="mask", message=f"expected 0 and 1, got {int(mask.max())}")
