"""Closed parts without tensors: what a commit needs to see of a part, and nothing that takes time."""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datagen.store.closed_part import ClosedPart, index_columns
from datagen.store.door import Door
from datagen.store.layout import Layout
from schemas.record import sha256_hex
from schemas.records import FileDigest, PartRecord, PartTensor, QuarantinedSample
from schemas.schema import Schema


def fake_id(number: int) -> str:
    """Return a sample id."""
    return hashlib.sha256(b"sample %d" % number).hexdigest()


def fake_closed(
    schema: Schema, numbers: Sequence[int], *, run_id: str = "run", trained: int = 1
) -> ClosedPart:
    """Return a closed part with a sample a number; nothing is stored."""
    lengths = np.array([number % 50 + 1 for number in numbers], np.int32)
    n_tokens = int(lengths.sum())
    record = PartRecord(
        part_id=uuid.uuid4().hex,
        run_id=run_id,
        schema_fingerprint=schema.fingerprint,
        created_at=datetime.now(UTC),
        n_samples=len(numbers),
        n_tokens=n_tokens,
        tensors=tuple(
            PartTensor(
                name=spec.name,
                path=f"data.zarr/{spec.name}/c/0/0",
                row_bytes=spec.row_bytes,
                payload_bytes=n_tokens * spec.row_bytes,
            )
            for spec in schema.tensors
        ),
        files=(FileDigest(path="samples.parquet", size_bytes=100 * len(numbers)),),
    )
    return ClosedPart(record, sha256_hex(record.to_json()), fake_rows(record, lengths, numbers, trained))


def fake_part(
    door: Door, dataset: str, schema: Schema, numbers: Sequence[int], *, run_id: str = "run", trained: int = 1
) -> ClosedPart:
    """Store the record of a part with a sample a number, and return it closed."""
    part = fake_closed(schema, numbers, run_id=run_id, trained=trained)
    door.create(Layout(dataset).part_record(part.record.part_id), part.record.to_json())
    return part


def fake_rows(
    record: PartRecord, lengths: NDArray[np.int32], numbers: Sequence[int], trained: int
) -> pa.Table:
    """Return the index rows of a fake part."""
    n, n_tensors = len(numbers), len(record.tensors)
    ids = [bytes.fromhex(fake_id(number)) for number in numbers]
    values: dict[str, Any] = {
        "sample_id": ids,
        "prompt_id": [hashlib.sha256(i).digest() for i in ids],
        "conversation_id": [f"conversation-{number}" for number in numbers],
        "part_id": [record.part_id] * n,
        "part_sha256": [sha256_hex(record.to_json())] * n,
        "row_start": np.cumsum(lengths) - lengths,
        "n_tokens": lengths,
        "n_trained": np.full(n, trained),
        "crc32c": list(np.arange(n * n_tensors).reshape(n, n_tensors)),
        "norm_median": list(np.ones((n, n_tensors), np.float32)),
        "norm_p99": list(np.ones((n, n_tensors), np.float32)),
    }
    schema = index_columns(n_tensors)
    columns = [pa.array(values[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def failed(number: int, run_id: str = "run") -> QuarantinedSample:
    """Return a sample that was not made."""
    return QuarantinedSample(
        source=f"prompts.jsonl:{number}", reason="empty", detail="no messages", run_id=run_id
    )
