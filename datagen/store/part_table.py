"""`samples.parquet` of one part, read: where each sample's rows start and what their blocks sum to.

The rows must fit the schema, the part's record and each other before anything in them is believed.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datagen.store.damage import corrupt, damage
from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.samples import samples_schema
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS, PartRecord
from schemas.schema import Schema


class PartSample(NamedTuple):
    """One sample of a part, its small columns: `n_trained` tokens carry a loss."""

    sample_id: str
    prompt_id: str
    conversation_id: str
    source: str
    row_start: int
    n_tokens: int
    n_trained: int
    text: str | None


class PartTable:
    """The rows of `samples.parquet`, in the order of the part's rows."""

    def __init__(self, rows: pa.Table, schema: Schema, where: str) -> None:
        self._rows = rows.combine_chunks()
        self._schema = schema
        self.where = where

    @classmethod
    def decode(cls, data: bytes, schema: Schema, record: PartRecord, where: str) -> "PartTable":
        """Read the file's bytes, whose sha256 was found to be the record's.

        Raises `CorruptError` that names `where` when they contradict the record or the schema.
        """
        try:
            rows = pq.read_table(pa.BufferReader(data), page_checksum_verification=True, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise corrupt(where, "parquet", f"expected a Parquet file, got: {error}") from error
        table = cls(rows, schema, where)
        if problems := table._problems(record):
            raise CorruptError(f"{where} is damaged", problems)
        return table

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """`[n]`: the first row of each sample."""
        return np.asarray(self._rows.column("row_start").to_numpy(), np.int64)

    @cached_property
    def n_tokens(self) -> NDArray[np.int32]:
        """`[n]`: the tokens of each sample."""
        return np.asarray(self._rows.column("n_tokens").to_numpy(), np.int32)

    def sample(self, row: int) -> PartSample:
        """Return the small columns of one row."""
        values: Any = self._rows.select(PartSample._fields).slice(row, 1).to_pylist()[0]
        values["sample_id"] = values["sample_id"].hex()
        values["prompt_id"] = values["prompt_id"].hex()
        return PartSample(**values)

    def find(self, row_start: int, n_tokens: int) -> int:
        """Return the row of the sample that starts at `row_start`.

        Raises `NotFoundError` when no sample of `n_tokens` tokens starts there.
        """
        starts = self.row_starts
        row = int(starts.searchsorted(row_start))
        if row < len(starts) and starts[row] == row_start and self.n_tokens[row] == n_tokens:
            return row
        message = f"expected a sample of {n_tokens} tokens at row {row_start}, got none"
        raise NotFoundError(
            f"no such sample in {self.where}", [Problem(where=self.where, kind="sample", message=message)]
        )

    def blocks(self, row: int, name: str) -> NDArray[np.uint32]:
        """Return the crc32c of each 64-row block of a sample's tensor, `[ceil(T / 64)]`."""
        return self._list(f"crc32c.{name}", row)

    def norms(self, row: int, name: str) -> NDArray[np.float32]:
        """Return the L2 norm of each row of a sample's tensor, `[T]`."""
        return self._list(f"norms.{name}", row)

    def whole(self, row: int, name: str) -> int:
        """Return the crc32c of all rows of a sample's tensor."""
        return int(self._rows.column(f"crc32c_all.{name}")[row].as_py())

    @cached_property
    def _flat(self) -> Mapping[str, tuple[NDArray[np.int32], NDArray[Any]]]:
        flat = {}
        for name in self._schema.names:
            for column in (f"crc32c.{name}", f"norms.{name}"):
                values: Any = self._rows.column(column).chunk(0)
                flat[column] = (values.offsets.to_numpy(), values.values.to_numpy())
        return flat

    def _list(self, column: str, row: int) -> NDArray[Any]:
        ends, values = self._flat[column]
        return values[ends[row] : ends[row + 1]]

    def _problems(self, record: PartRecord) -> list[Problem]:
        """Return where the rows contradict the schema, the record, or each other."""
        columns = samples_schema(self._schema)
        if not self._rows.schema.equals(columns):
            return [damage(self.where, "columns", f"expected {columns.names}, got {self._rows.schema.names}")]
        problems = []
        ends = np.cumsum(self.n_tokens, dtype=np.int64)
        if len(self) != record.n_samples:
            message = f"expected {record.n_samples} samples, got {len(self)}"
            problems.append(damage(self.where, "rows", message))
        elif self.row_starts.tolist() != [0, *ends[:-1].tolist()] or ends[-1] != record.n_tokens:
            message = f"expected samples end to end over {record.n_tokens} rows, got gaps or overlaps"
            problems.append(damage(self.where, "row_start", message))
        for name in self._schema.names:
            lengths = {f"crc32c.{name}": -(-self.n_tokens // BLOCK_ROWS), f"norms.{name}": self.n_tokens}
            for column, expected in lengths.items():
                if not np.array_equal(np.diff(self._flat[column][0]), expected):
                    message = f"expected as many values of {column} as its samples' tokens ask for"
                    problems.append(damage(self.where, "lists", message))
        return problems
