"""EAGLE's `ge_data`, as the trainer of EAGLE-1 and 2 reads it: a torch file a sample, the last state alone.

    ge_data/sharegpt_0_{n}_mufp16/0/data_{row}.ckpt   input_ids, loss_mask int64 [T]; hidden_state float16
                                                      [T, H], after the final norm

The draft's input and what it learns are the same state, one token apart; there is no `fc` over several. The
trainer takes every file below its folder, whatever it is called, so nothing else lies there; it shifts by
itself. A state that float16 has no room for ends the export. EAGLE-3 has no files: its target runs beside it.
Source: `ge_data/ge_data_all_vicuna.py` and `train/main.py` of eagle-llm 1.2.1.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.exports.format import Row, Source
from datagen.adapters.exports.lazy_states import column, states
from datagen.adapters.exports.torch_files import LazyTensor
from datagen.adapters.exports.torch_samples import TorchFileFormat, target_of
from datagen.errors import ExportError
from schemas.problem import Problem

FOLDER = "ge_data"
LARGEST = 65504.0
"""The largest number of float16."""


class EagleFormat(TorchFileFormat):
    """The training data of EAGLE-1 and 2."""

    name = "eagle"
    trainer = "eagle-1"
    holds_out = False
    made_told = "states are rounded to float16; what it cannot hold (beyond 65504) ends the export"
    rows_told = "of which the trainer holds a twentieth out by itself, whatever conversation they are of"

    def names(self, rows: Sequence[Row]) -> list[str]:
        folder = f"{FOLDER}/sharegpt_0_{len(rows)}_mufp16/0"
        return [f"{folder}/data_{row.number}.ckpt" for row in rows]

    def content(self, row: Row, source: Source) -> object:
        return {
            "input_ids": column(source, row, "input_ids"),
            "hidden_state": _as_float16(states(source, row, target_of(source.wiring)), row),
            "loss_mask": column(source, row, "loss_mask"),
        }

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        return f"eagle/train/main.py of EAGLE-2 with --tmpdir {quote(str(folder / FOLDER))} --basepath TARGET"


def _as_float16(wide: LazyTensor, row: Row) -> LazyTensor:
    """Return a tensor rounded to float16; reading it raises `ExportError` where a value does not fit."""

    def read() -> Iterator[NDArray[np.generic]]:
        first = 0
        for values in wide.read():
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float16)
            if not np.isfinite(narrow).all():
                raise _too_large(values, row, first)
            first += len(values)
            yield narrow

    return LazyTensor("float16", wide.shape, read)


def _too_large(values: NDArray[np.generic], row: Row, first: int) -> ExportError:
    token, at = np.unravel_index(np.abs(values.astype(np.float32)).argmax(), values.shape)
    problem = Problem(
        where=f"sample {row.location.sample_id}, token {first + int(token)}, feature {int(at)}",
        kind="overflow",
        message=f"expected states within ±{LARGEST:g}, which the format's float16 holds, "
        f"got {float(values[token, at]):g}",
        repair="export to a format that keeps the dataset's dtype: specforge, speculators or modelopt",
    )
    return ExportError("a state is too large for the format", [problem])
