"""What a closed part hands to the committer: its record, and the rows that the index will hold of it.

It is small (some 300 bytes a sample) and plain, so that it travels between processes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datagen.store.samples import ID_BYTES, SampleRow, id_array
from schemas.records import PartRecord
from schemas.schema import Schema


@dataclass(frozen=True)
class ClosedPart:
    """A durable part that no version holds yet.

    `record_sha256` is the sha256 of `part.json`; `samples` has the columns of `index_columns`.
    """

    record: PartRecord
    record_sha256: str
    samples: pa.Table


def index_columns(n_tensors: int) -> pa.Schema:
    """Return the columns of `ClosedPart.samples`; lists hold a value a tensor, in the schema's order."""
    fields: list[pa.Field[Any]] = [
        pa.field("sample_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("prompt_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("conversation_id", pa.string(), nullable=False),
        pa.field("part_id", pa.string(), nullable=False),
        pa.field("part_sha256", pa.string(), nullable=False),
        pa.field("row_start", pa.int64(), nullable=False),
        pa.field("n_tokens", pa.int32(), nullable=False),
        pa.field("n_trained", pa.int32(), nullable=False),
        pa.field("crc32c", pa.list_(pa.uint32(), n_tensors), nullable=False),
        pa.field("norm_median", pa.list_(pa.float32(), n_tensors), nullable=False),
        pa.field("norm_p99", pa.list_(pa.float32(), n_tensors), nullable=False),
    ]
    return pa.schema(fields)


class IndexRows:
    """Gathers the index's rows of a part while it is written."""

    def __init__(self, schema: Schema) -> None:
        self._names = schema.names
        self._rows: list[dict[str, Any]] = []

    def add(self, row: SampleRow) -> None:
        """Note one sample."""
        median, p99 = median_and_p99(np.stack([row.norms[name] for name in self._names]))
        self._rows.append(
            {
                "sample_id": row.sample_id,
                "prompt_id": row.prompt_id,
                "conversation_id": row.conversation_id,
                "row_start": row.row_start,
                "n_tokens": row.n_tokens,
                "n_trained": row.n_trained,
                "crc32c": [row.scans[name].whole for name in self._names],
                "norm_median": median,
                "norm_p99": p99,
            }
        )

    def table(self, part_id: str, part_sha256: str) -> pa.Table:
        """Return the rows with the part's id and the sha256 of its record in each."""
        columns = index_columns(len(self._names))
        arrays: dict[str, pa.Array[Any]] = {
            "part_id": pa.array([part_id] * len(self._rows), pa.string()),
            "part_sha256": pa.array([part_sha256] * len(self._rows), pa.string()),
        }
        for field in columns:
            if field.name not in arrays:
                values = [row[field.name] for row in self._rows]
                is_id = pa.types.is_fixed_size_binary(field.type)
                arrays[field.name] = id_array(values) if is_id else pa.array(values, field.type)
        return pa.Table.from_arrays([arrays[name] for name in columns.names], schema=columns)


def median_and_p99(norms: NDArray[np.float32]) -> tuple[list[float], list[float]]:
    """Return the median and the 99th percentile of each row of `[n, T]`, linear between values.

    >>> median_and_p99(np.array([[3.0, 1.0, 2.0]], np.float32))[0]
    [2.0]
    """
    ordered = np.sort(norms, axis=1)
    found = []
    for share in (0.5, 0.99):
        at = share * (ordered.shape[1] - 1)
        low = int(at)
        high = min(low + 1, ordered.shape[1] - 1)
        found.append(ordered[:, low] + (ordered[:, high] - ordered[:, low]) * np.float32(at - low))
    return found[0].tolist(), found[1].tolist()
