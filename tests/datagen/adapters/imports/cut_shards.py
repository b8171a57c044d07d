"""A file or a cache's shard that is cut by somebody else while a sample of it is held."""

import numpy as np

from datagen.adapters.imports.format import OpenFiles


def cut_while_held(files: OpenFiles) -> None:
    """Hold the first sample, cut its file, and see that every byte of it is there still."""
    row, shape = files.read(files.samples[0]), files.read(files.samples[0], states=False)
    assert [(slot.name, slot.rows.dtype, slot.rows.shape) for slot in row.slots] == [
        (slot.name, slot.rows.dtype, slot.rows.shape) for slot in shape.slots
    ]
    assert np.array_equal(row.token_ids, shape.token_ids)
    before = [slot.rows.tobytes() for slot in row.slots]
    with open(files.samples[0].path, "r+b") as shard:
        shard.truncate(100)
    assert [slot.rows.tobytes() for slot in row.slots] == before
