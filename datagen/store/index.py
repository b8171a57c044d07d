"""The index of one version: every sample by its id, and in the order of its id.

It stands over several index files (`IndexTable`s) and never copies their rows: a lookup goes through each
file's sorted ids, and the global order is one array of row numbers. The order is by `sample_id`: how samples
are packed in parts and in index files changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datagen.store.damage import corrupt
from datagen.store.errors import NotFoundError
from datagen.store.index_table import ID_BYTES, IndexTable, id_strings, int_values, members, packed_values
from schemas.problem import Problem


@dataclass(frozen=True)
class Location:
    """Where a sample lies, and what the index knows of it.

    Its rows in every array of its part are `row_start` to `row_start + n_tokens`. `crc32c`, `norm_median` and
    `norm_p99` have one value a tensor, in the schema's order: the checksum of all its bytes, and the median
    and 99th percentile of its rows' L2 norms.
    """

    sample_id: str
    prompt_id: str
    conversation_id: str
    part_id: str
    part_sha256: str
    row_start: int
    n_tokens: int
    n_trained: int
    crc32c: tuple[int, ...]
    norm_median: tuple[float, ...]
    norm_p99: tuple[float, ...]


class Place(NamedTuple):
    """Where a sample's rows lie, and nothing else of it; `Location` says the rest."""

    part_id: str
    part_sha256: str
    row_start: int
    n_tokens: int


class Index:
    """The samples of a version; immutable, and safe for threads."""

    def __init__(self, tables: Sequence[IndexTable]) -> None:
        self.tables = tuple(tables)
        self._starts = np.cumsum([0, *(len(table) for table in self.tables)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __contains__(self, sample_id: object) -> bool:
        return isinstance(sample_id, str) and self._find(sample_id) is not None

    def locate(self, sample_id: str) -> Location:
        """Return where a sample lies; raises `NotFoundError` when this version has no such sample."""
        return location_of(*self._found(sample_id))

    def place(self, sample_id: str) -> Place:
        """Return where a sample's rows lie, in a tenth of the time that `locate` takes; raises as that."""
        table, row = self._found(sample_id)
        part = table.part(int(table.part_numbers[row]))
        return Place(part.part_id, part.sha256, int(table.row_starts[row]), int(table.lengths[row]))

    def at(self, position: int) -> Location:
        """Return the sample at a position from 0, counted in the order of `sample_id`.

        Raises `IndexError` outside of `0 <= position < len(self)`.
        """
        if not 0 <= position < len(self):
            raise IndexError(f"expected a position between 0 and {len(self) - 1}, got {position}")
        number = int(self.order[position])
        table = int(np.searchsorted(self._starts, number, side="right")) - 1
        return location_of(self.tables[table], number - int(self._starts[table]))

    def __iter__(self) -> Iterator[Location]:
        return (self.at(position) for position in range(len(self)))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """`[n]`: the row number (over the files end to end) of each position.

        Raises `CorruptError` when a sample is in two index files.
        """
        if len(self.tables) < 2:
            return np.arange(len(self), dtype=np.int64)
        keys = np.concatenate([table.keys for table in self.tables])
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        if bool((ordered[1:] == ordered[:-1]).any()):
            # Two ids share their first eight bytes: either the same sample twice, or a rare coincidence.
            ids = np.concatenate([table.ids for table in self.tables])
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
            twice = ids[1:][ids[1:] == ids[:-1]]
            if len(twice):
                raise corrupt("index", "twice", f"expected each sample once, got {_hex(twice[0])} twice")
        return order.astype(np.int64)

    @cached_property
    def sample_ids(self) -> "IdSequence":
        """Every sample id in order, 64 hex digits each."""
        return IdSequence(self._in_order_ids("sample_id"))

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`[n]`: tokens of each sample, by position."""
        return self._lengths("n_tokens")

    @cached_property
    def trained_lengths(self) -> NDArray[np.int32]:
        """`[n]`: tokens of each sample with a loss, by position."""
        return self._lengths("n_trained")

    def norms(self, name: Literal["norm_median", "norm_p99"]) -> NDArray[np.float32]:
        """Return `[n, n_tensors]`: that figure of the rows' L2 norms, by position, in the schema's order."""
        if not len(self):
            return np.zeros((0, 0), np.float32)
        lists = cast("pa.FixedSizeListArray[Any, Any]", self.column(name))
        values = packed_values(pa.chunked_array([lists.flatten()]), np.dtype(np.float32))
        return values.reshape(len(self), -1)

    @property
    def n_tokens(self) -> int:
        """Tokens of all samples."""
        return sum(table.n_tokens for table in self.tables)

    def column(self, name: str) -> "pa.Array[Any]":
        """Return one column of the index by position; raises `NotFoundError` when there are no samples."""
        if not self.tables:
            raise NotFoundError(f"no column {name!r}: this version has no samples")
        rows = pa.concat_tables([table.rows.select([name]) for table in self.tables])
        if len(self.tables) > 1:
            rows = rows.take(self.order)
        return rows.combine_chunks().column(name).chunks[0]

    def positions(self, *, min_tokens: int = 0, min_trained: int = 0) -> NDArray[np.int64]:
        """Return the positions of the samples that are long enough, ascending."""
        if not len(self):
            return np.zeros(0, np.int64)
        keep = (self.lengths >= min_tokens) & (self.trained_lengths >= min_trained)
        return np.flatnonzero(keep).astype(np.int64)

    def prompt_ids(self) -> "IdSet":
        """Return the prompts that this version has samples of: resume skips them."""
        return IdSet([id_strings(table.rows.column("prompt_id")) for table in self.tables])

    def parts(self) -> dict[str, str]:
        """Return every part that a sample lies in: its id, and the sha256 of its `part.json`.

        Raises `CorruptError` when two index files name one part with two digests.
        """
        found: dict[str, str] = {}
        for table in self.tables:
            for part in table.part_references():
                if found.setdefault(part.part_id, part.sha256) != part.sha256:
                    message = (
                        f"expected one sha256 of its record, got {part.sha256} and {found[part.part_id]}"
                    )
                    raise corrupt(f"parts/{part.part_id}", "two_digests", message)
        return found

    def _found(self, sample_id: str) -> tuple[IndexTable, int]:
        found = self._find(sample_id)
        if found is None:
            message = f"expected one of the {len(self)} samples of this version, got none of that id"
            raise NotFoundError("no such sample", [Problem(where=sample_id, kind="sample", message=message)])
        return found

    def _find(self, sample_id: str) -> tuple[IndexTable, int] | None:
        try:
            wanted = bytes.fromhex(sample_id)
        except ValueError:
            return None
        if len(wanted) != ID_BYTES:
            return None
        for table in self.tables:
            row = table.find(wanted)
            if row is not None:
                return table, row
        return None

    def _lengths(self, name: str) -> NDArray[np.int32]:
        if not self.tables:
            return np.zeros(0, np.int32)
        values = np.concatenate([int_values(table.rows.column(name), np.int32) for table in self.tables])
        return values[self.order]

    def _in_order_ids(self, name: str) -> NDArray[np.bytes_]:
        if not self.tables:
            return np.zeros(0, np.dtype(f"S{ID_BYTES}"))
        ids = np.concatenate([id_strings(table.rows.column(name)) for table in self.tables])
        return ids if len(self.tables) == 1 else ids[self.order]


def location_of(table: IndexTable, row: int) -> Location:
    """Return one row of an index file."""
    values = table.rows.slice(row, 1).to_pylist()[0]
    part = table.part(values["part"])
    return Location(
        sample_id=values["sample_id"].hex(),
        prompt_id=values["prompt_id"].hex(),
        conversation_id=values["conversation_id"],
        part_id=part.part_id,
        part_sha256=part.sha256,
        row_start=values["row_start"],
        n_tokens=values["n_tokens"],
        n_trained=values["n_trained"],
        crc32c=tuple(values["crc32c"]),
        norm_median=tuple(values["norm_median"]),
        norm_p99=tuple(values["norm_p99"]),
    )


class IdSequence(Sequence[str]):
    """Ids in an order, kept as 32 bytes each and spelled as hex when asked for."""

    def __init__(self, ids: NDArray[np.bytes_]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> "IdSequence": ...
    def __getitem__(self, at: int | slice) -> "str | IdSequence":
        return IdSequence(self._ids[at]) if isinstance(at, slice) else _hex(self._ids[at])

    def as_bytes(self) -> NDArray[np.uint8]:
        """Return `[n, 32]`: the bytes of each id."""
        return np.ascontiguousarray(self._ids).view(np.uint8).reshape(len(self), ID_BYTES)


class IdSet:
    """A set of ids in a few sorted arrays; asks cost a binary search each."""

    def __init__(self, arrays: Sequence[NDArray[np.bytes_]]) -> None:
        joined = np.concatenate(arrays) if arrays else np.zeros(0, np.dtype(f"S{ID_BYTES}"))
        self._ids = np.unique(joined)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return (_hex(value) for value in self._ids)

    def __contains__(self, id_hex: object) -> bool:
        if not isinstance(id_hex, str) or len(id_hex) != 2 * ID_BYTES:
            return False
        wanted = np.array([bytes.fromhex(id_hex)], self._ids.dtype)
        return bool(members(self._ids, wanted)[0])


def _hex(stripped: bytes) -> str:
    # numpy strips the trailing zero bytes of a fixed-size string.
    return bytes(stripped).ljust(ID_BYTES, b"\0").hex()
