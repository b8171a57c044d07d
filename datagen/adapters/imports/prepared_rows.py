"""The dataset that speculators' trainer reads beside the states: token ids and loss mask of each row."""

from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.safe_loading import refused
from schemas.problem import Problem

COLUMNS = ("input_ids", "loss_mask")
_MARKS = ("state.json", "dataset_info.json")


class PreparedRow(NamedTuple):
    """One row: its token ids and its mask, as they lie there."""

    token_ids: NDArray[np.int64]
    loss_mask: NDArray[np.generic]


def is_prepared(folder: Path) -> bool:
    """Say whether a folder is a dataset as `save_to_disk` leaves it."""
    return all((folder / name).is_file() for name in _MARKS)


class PreparedRows:
    """A prepared dataset, its rows read when they are asked for; safe for threads.

    Opening raises `ForeignFileError` where it is damaged, or has not the columns.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            loaded = datasets.load_from_disk(str(folder))
        except (OSError, ValueError, TypeError, KeyError, NotImplementedError) as error:
            message = f"expected a dataset of save_to_disk, got: {str(error)[:200]}"
            raise refused(folder, "prepared", message) from error
        there = list(getattr(loaded, "column_names", ()))
        if missing := [name for name in COLUMNS if name not in there]:
            message = f"expected columns {' and '.join(COLUMNS)}, got none of {', '.join(missing)}"
            repair = "give the folder that was made for the trainer with --masks"
            problem = Problem(where=str(folder), kind="prepared", message=message, repair=repair)
            raise ForeignFileError("this is no dataset prepared for speculators", [problem])
        self._rows = loaded.select_columns(list(COLUMNS)).with_format("arrow")

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> PreparedRow:
        """Return one row, `0 <= number < len(self)`; raises `ForeignFileError` where it has no integers."""
        try:
            read = self._rows[number]
            ids, mask = (_values(read.column(name)) for name in COLUMNS)
        except (OSError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
            message = f"expected lists of integers, got: {str(error)[:200] or type(error).__name__}"
            raise refused(self.folder, "prepared", f"row {number}: {message}") from error
        return PreparedRow(ids.astype(np.int64, copy=False), mask)


def _values(column: Any) -> NDArray[np.generic]:
    values = column[0].values
    found: NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "iub" or values.null_count:
        raise TypeError(f"a list of {values.type} with {values.null_count} nulls")
    return found
