"""Quarantine files: the samples that were not made, a row each with its reason.

`quarantine/<sha256>.parquet`, named by content like index files. A sample that fails the same way in a later
run is the same row: one `(source, prompt_id, reason)` stands once in a version.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from datagen.store.damage import corrupt
from datagen.store.index_table import read_hashed_parquet
from schemas.errors import RecordError
from schemas.record import canonical_json
from schemas.records import IndexFile, QuarantinedSample

_SCHEMA = pa.schema(
    [
        pa.field(name, pa.string(), nullable=not field.is_required())
        for name, field in QuarantinedSample.model_fields.items()
    ]
)

Key = tuple[str, str | None, str]


def key_of(sample: QuarantinedSample) -> Key:
    """Return what two rows of the same failure share."""
    return sample.source, sample.prompt_id, sample.reason


def new_rows(found: Iterable[QuarantinedSample], known: Iterable[Key]) -> list[QuarantinedSample]:
    """Return the rows of `found` that are neither known nor given before."""
    seen = set(known)
    fresh: list[QuarantinedSample] = []
    for sample in found:
        if key_of(sample) not in seen:
            seen.add(key_of(sample))
            fresh.append(sample)
    return fresh


def encode(samples: Sequence[QuarantinedSample]) -> tuple[bytes, IndexFile]:
    """Return a quarantine file's bytes and the entry of it in a version record."""
    rows = pa.Table.from_pylist([sample.model_dump(mode="json") for sample in samples], _SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    digest = hashlib.sha256(data).hexdigest()
    return data, IndexFile(sha256=digest, n_rows=len(samples), n_tokens=0, size_bytes=len(data))


def decode(data: bytes, file: IndexFile, where: str) -> list[QuarantinedSample]:
    """Read a quarantine file; raises `CorruptError` when it is not what the version record says."""
    return list(_samples(read_hashed_parquet(data, file, where), where))


def _samples(rows: pa.Table, where: str) -> Iterator[QuarantinedSample]:
    for row in rows.to_pylist():
        try:
            yield QuarantinedSample.from_json(canonical_json(row), where)
        except RecordError as error:
            raise corrupt(where, "row", f"expected quarantined samples, got: {error}") from error
