"""speculators' offline format read for an import: a file of states a row, and the prepared dataset beside it.

    hs_{row}.safetensors   hidden_states [T, K, H], the target's state last; token_ids [T]
    *.arrow, state.json    input_ids, loss_mask of each row

Which boundaries the K slots are was an option of the server that wrote them and stands nowhere. A file's
token ids must be its row's: the dataset may have been prepared again since. Source: release 0.9.0,
`train/data.py` and `hs_connectors/transfer.py`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from datagen.adapters.errors import ForeignFileError, refused
from datagen.adapters.foreign_files import sample_of
from datagen.adapters.imports.foreign_content import slots_apart, with_whole_states
from datagen.adapters.imports.foreign_listing import FileNames, gap_problems, listed_files, some_of
from datagen.adapters.imports.format import ALL_TRAINED, ForeignRow, ImportOptions, Listed
from datagen.adapters.imports.prepared_rows import PreparedRows, is_prepared
from datagen.adapters.safe_loading import load
from schemas.problem import Problem

_NAMES = FileNames("files called hs_0.safetensors", re.compile(r"hs_([0-9]{1,18})\.safetensors"))


@dataclass(frozen=True)
class SpeculatorsFiles:
    """Files of states, and the rows that they belong to; `OpenFiles`."""

    options: ImportOptions
    samples: Sequence[Listed]
    problems: Sequence[Problem]
    rows: PreparedRows | None
    claimed: tuple[str, ...] | None = field(default=None)

    def read(self, listed: Listed, *, states: bool = True) -> ForeignRow:
        """Read one file and its row; raises `ForeignFileError`, also where the two have not the same ids."""
        file = listed.path
        content = with_whole_states(file, load(file, states=states), self.options.dequantise)
        sample = sample_of(file, content, views=True)
        if sample.layout != "speculators" or not isinstance(content, Mapping):
            message = (
                f"expected a file of speculators (hidden_states [T, K, H], token_ids), got {sample.layout}"
            )
            raise refused(file, "layout", message, "give the --format that wrote it")
        if sample.token_ids is None:
            raise refused(file, "token_ids", "expected token_ids beside the states, got none")
        slots = tuple(slots_apart(sample.slots, self.options.target.hidden_size))
        if self.rows is None:
            return ForeignRow(sample.token_ids, None, slots)
        number = listed.number
        if number is None or number >= len(self.rows):
            message = (
                f"expected hs_0 to hs_{len(self.rows) - 1}, a row of the prepared dataset, got {file.name}"
            )
            raise refused(file, "row", message, "its loss mask is not known: give the dataset it was made of")
        row = self.rows.row(number)
        if not np.array_equal(row.token_ids, sample.token_ids):
            message = (
                f"expected the {len(row.token_ids)} token ids of row {number} of {self.rows.folder}, "
                f"got {len(sample.token_ids)} others"
            )
            repair = "was the dataset prepared again since? give the one of that time with --masks"
            raise refused(file, "row", message, repair)
        return ForeignRow(sample.token_ids, row.loss_mask, slots)


class SpeculatorsImport:
    """The current offline format; an `ImportFormat`."""

    name = "speculators"

    def open(self, paths: Sequence[Path], options: ImportOptions) -> SpeculatorsFiles:
        """Find the files and the prepared dataset; what is wrong as a whole is in `problems`."""
        samples, problems = listed_files(paths, _NAMES)
        try:
            rows = _rows(paths, options)
        except ForeignFileError as error:
            return SpeculatorsFiles(options, samples, [*problems, *error.problems], None)
        if rows is not None:
            problems += _missing(samples, len(rows))
        else:
            problems += gap_problems(samples)
        return SpeculatorsFiles(options, samples, problems, rows)


def _rows(paths: Sequence[Path], options: ImportOptions) -> PreparedRows | None:
    """Return the prepared dataset: the one that was named, or the one in a folder or the folder above."""
    if options.masks == ALL_TRAINED:
        return None
    if isinstance(options.masks, Path):
        return PreparedRows(options.masks)
    folders = [path if path.is_dir() else path.parent for path in paths]
    for folder in dict.fromkeys(near for given in folders for near in (given, given.absolute().parent)):
        if is_prepared(folder):
            return PreparedRows(folder)
    message = "expected the dataset that was prepared for the trainer beside the states, got none"
    repair = "give its folder with --masks, or --masks ones to train on every token"
    raise refused(paths[0], "loss_mask", message, repair)


def _missing(samples: Sequence[Listed], n_rows: int) -> Iterator[Problem]:
    """Yield a note of the rows that have no file: the trainer skips those too."""
    there = {listed.number for listed in samples}
    gone = [number for number in range(n_rows) if number not in there]
    if gone:
        message = f"expected a file a row, got none of {len(gone)} of {n_rows} rows: {some_of(gone)}"
        yield Problem(where="files", kind="gap", message=message, severity="note")
