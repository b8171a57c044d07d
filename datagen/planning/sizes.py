"""How many bytes a run will write, by what they are: the same arithmetic as the layout on disk.

A shard is its rows, padded to whole chunks of 64 rows, and an index of 16 bytes a chunk. Beside the tensors
go the token columns, a float32 norm a tensor and token, checksums, ids, and the conversation's text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.records import BLOCK_ROWS
from schemas.schema import Schema

INDEX_ENTRY_BYTES = 16
CRC_BYTES = 4
OFFSET_BYTES = 8
SAMPLE_ROW_BYTES = 2 * 32 + 8 + 4 + 4
"""Ids, row start, token counts of a row of `samples.parquet`."""
INDEX_ROW_BYTES = 2 * 32 + 8 + 3 * 4
"""Ids, part, row start, token counts of a row of the version's index."""
PART_FIXED_BYTES = 12_000
"""`part.json`, every `zarr.json`, the Parquet footer: measured, some 1.6 kB a tensor and a few kB beside."""
TEXT_PROBE_BYTES = 4 << 20


@dataclass(frozen=True)
class SampleSize:
    """What the size of a sample follows from."""

    n_tokens: int
    name_bytes: int
    text_bytes: float


@dataclass(frozen=True)
class Sizes:
    """Bytes by what they are. `tensors` are each tensor's shards, padding and shard index included."""

    tensors: dict[str, int]
    token_columns: int
    norms_and_checksums: int
    text: int
    records: int
    index: int

    @property
    def total(self) -> int:
        return (
            sum(self.tensors.values())
            + self.token_columns
            + self.norms_and_checksums
            + self.text
            + self.records
            + self.index
        )


def part_sizes(schema: Schema, parts: Sequence[Sequence[SampleSize]]) -> Sizes:
    """Return the bytes of parts that hold these samples each."""
    samples = [sample for part in parts for sample in part]
    n_tokens = sum(sample.n_tokens for sample in samples)
    chunks = sum(-(-sum(sample.n_tokens for sample in part) // BLOCK_ROWS) for part in parts)
    blocks = sum(-(-sample.n_tokens // BLOCK_ROWS) for sample in samples)
    n_tensors = len(schema.tensors)
    names = sum(sample.name_bytes for sample in samples)
    return Sizes(
        tensors={
            spec.name: chunks * BLOCK_ROWS * spec.row_bytes
            + chunks * INDEX_ENTRY_BYTES
            + len(parts) * CRC_BYTES
            for spec in schema.tensors
        },
        token_columns=n_tokens * sum(column.row_bytes for column in schema.token_columns)
        + (len(samples) + len(parts)) * OFFSET_BYTES,
        norms_and_checksums=n_tensors * (4 * n_tokens + CRC_BYTES * (blocks + len(samples))),
        text=round(sum(sample.text_bytes for sample in samples)),
        records=len(samples) * SAMPLE_ROW_BYTES + names + len(parts) * PART_FIXED_BYTES,
        index=len(samples) * (INDEX_ROW_BYTES + n_tensors * 12) + names,
    )


def compressed_ratio(texts: Sequence[str]) -> float:
    """Return how far texts compress, measured on at most 4 MiB of them; 1.0 without any text.

    `samples.parquet` keeps the conversations as zstd.
    """
    taken: list[bytes] = []
    size = 0
    for text in texts:
        if size >= TEXT_PROBE_BYTES:
            break
        taken.append(text.encode())
        size += len(taken[-1])
    if not size:
        return 1.0
    return float(len(pa.compress(b"".join(taken), codec="zstd", asbytes=True))) / size
