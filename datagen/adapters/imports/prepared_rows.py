"""The dataset that speculators' trainer reads beside the states: token ids and loss mask of each row.

It is a folder as HF's `save_to_disk` leaves it: `state.json` names Arrow streams; their batches are read
where they lie, one at a time. `datasets` itself maps them, and who prepares the dataset again cuts them.
"""

import json
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datagen.adapters.errors import ForeignFileError, refused
from schemas.problem import Problem

COLUMNS = ("input_ids", "loss_mask")
_STATE = "state.json"
_MARKS = (_STATE, "dataset_info.json")
_BROKEN = (
    EOFError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)
"""What pyarrow raises of a stream that was cut, and of JSON or rows of another form."""


class PreparedRow(NamedTuple):
    """One row: its token ids and its mask, as they lie there."""

    token_ids: NDArray[np.int64]
    loss_mask: NDArray[np.generic]


class _Batch(NamedTuple):
    """Where some rows lie: their stream, the byte where the batch begins, the number of its first row."""

    path: Path
    start: int
    first: int


def is_prepared(folder: Path) -> bool:
    """Say whether a folder is a dataset as `save_to_disk` leaves it."""
    return all((folder / name).is_file() for name in _MARKS)


class PreparedRows:
    """A prepared dataset, its rows read when they are asked for; safe for threads.

    Opening raises `ForeignFileError` where it is damaged, or has not the columns.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._batches: list[_Batch] = []
        self._schemas: dict[Path, Any] = {}
        self._n_rows = 0
        # Neighbouring rows are read by one thread: each keeps the batch that it read last.
        self._last = threading.local()
        try:
            for path in _streams(folder):
                self._find_batches(path)
        except _BROKEN as error:
            message = f"expected a dataset of save_to_disk, got: {_told(error)}"
            raise refused(folder, "prepared", message) from error
        there = [set(schema.names) for schema in self._schemas.values()]
        if missing := [name for name in COLUMNS if not there or any(name not in names for names in there)]:
            message = f"expected columns {' and '.join(COLUMNS)}, got none of {', '.join(missing)}"
            repair = "give the folder that was made for the trainer with --masks"
            problem = Problem(where=str(folder), kind="prepared", message=message, repair=repair)
            raise ForeignFileError("this is no dataset prepared for speculators", [problem])

    def _find_batches(self, path: Path) -> None:
        with pa.OSFile(str(path), "rb") as stream:
            messages = pa.ipc.MessageReader.open_stream(stream)
            schema = self._schemas[path] = pa.ipc.read_schema(messages.read_next_message())
            while True:
                start = stream.tell()
                try:
                    message = messages.read_next_message()
                except StopIteration:
                    return
                self._batches.append(_Batch(path, start, self._n_rows))
                self._n_rows += pa.ipc.read_record_batch(message, schema).num_rows

    def __len__(self) -> int:
        return self._n_rows

    def row(self, number: int) -> PreparedRow:
        """Return one row, `0 <= number < len(self)`; raises `ForeignFileError` where it has no integers."""
        batch = self._batches[bisect_right(self._batches, number, key=lambda one: one.first) - 1]
        try:
            rows = self._rows_of(batch)
            ids, mask = (_values(rows.column(name)[number - batch.first]) for name in COLUMNS)
        except _BROKEN as error:
            message = f"expected lists of integers, got: {_told(error)}"
            raise refused(self.folder, "prepared", f"row {number}: {message}") from error
        return PreparedRow(ids.astype(np.int64, copy=False), mask)

    def _rows_of(self, batch: _Batch) -> Any:
        if getattr(self._last, "batch", None) != batch:
            with pa.OSFile(str(batch.path), "rb") as stream:
                stream.seek(batch.start)
                rows = pa.ipc.read_record_batch(pa.ipc.read_message(stream), self._schemas[batch.path])
            self._last.batch, self._last.rows = batch, rows
        return self._last.rows


def _streams(folder: Path) -> Iterator[Path]:
    """Yield the streams that `state.json` names; a name with a path in it would lead out of the folder."""
    for file in json.loads((folder / _STATE).read_text("utf-8"))["_data_files"]:
        name = file["filename"]
        if Path(name).name != name or (folder / name).is_fifo():
            raise ValueError(f"a file called {name[:80]!r}")
        yield folder / name


def _values(row: Any) -> NDArray[np.generic]:
    values = row.values
    found: NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "iub" or values.null_count:
        raise TypeError(f"a list of {values.type} with {values.null_count} nulls")
    return found


def _told(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__
