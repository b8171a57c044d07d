"""Padding to the right, which SpecForge writes with its samples and keeps no attention mask of.

Its collator pads ids and masks with zeros to the longest of a batch. Zeros at the end that are not trained on
are padding where a token that ends texts stands before them; else id 0 may be the text's own, and nobody can
tell. Source: SpecForge 0.2.0, `data/utils.py`, `paddingtensor2D`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from datagen.adapters.errors import refused
from datagen.adapters.foreign_samples import Slot
from datagen.adapters.imports.format import ForeignRow, ImportOptions
from schemas.sample import sample_id

PAD = 0
_BEHIND_ENDING = 2
"""A template may write a line's end behind the token that ends a turn."""


def without_padding(file: Path, row: ForeignRow, options: ImportOptions) -> ForeignRow:
    """Return a row without what is padding at its end, or as it is where `padding` says `keep`.

    Raises `ForeignFileError` where it cannot be told and nobody said what to do.
    """
    ids, mask = row.token_ids, row.loss_mask
    if options.padding == "keep" or mask is None or len(mask) != len(ids):
        return row  # a mask of another length is told by who ingests
    text = np.flatnonzero((ids != PAD) | (mask != 0))
    length = int(text[-1]) + 1 if len(text) else 0
    if length in (0, len(ids)) or (options.whole and sample_id(ids.tolist()) in options.whole):
        return row
    if options.padding == "tell":
        before = ids[max(0, length - _BEHIND_ENDING) : length]
        if not np.isin(before, options.endings).any():
            n = len(ids) - length
            message = f"expected to tell padding from text, got {n} tokens {PAD} at the end behind no ending"
            repair = "give --padding cut where they are padding, --padding keep where they are the text's"
            raise refused(file, "padding", message, repair)
    slots = tuple(
        Slot(slot.name, slot.rows[:length]) if len(slot.rows) == len(ids) else slot for slot in row.slots
    )
    return replace(row, token_ids=ids[:length], loss_mask=mask[:length], slots=slots)
