"""DeepSpec's target cache on disk: its manifest, its index records, and what lies where in a shard.

    manifest.json    version 2: dtypes, hidden_size, target_layer_ids ascending, the shards
    samples.idx      a record of 56 bytes a sample: its number, its shard, its length T, five byte offsets
    shard-00000.bin  a sample after the other: input_ids int32 [T], attention_mask and loss_mask uint8 [T],
                     target_hidden_states bfloat16 [T, k*H], target_last_hidden_states bfloat16 [T, H]

All little-endian, no padding between. A layer id is what that layer (from 0) writes; -1 is the embedding. The
last state is after the target's final norm. Source: `target_cache_dataset.py` and `target_extract.py`, git
afdfa7c9.
"""

import struct
from typing import NamedTuple

import numpy as np

INDEX = "samples.idx"
VERSION = 2
HIDDEN_DTYPE, TOKEN_DTYPE, MASK_DTYPE = "bfloat16", "int32", "uint8"
RECORD = struct.Struct("<QIIQQQQQ")
RECORD_DTYPE = np.dtype(
    [
        ("sample_id", "<u8"),
        ("shard_id", "<u4"),
        ("seq_len", "<u4"),
        ("input_ids", "<u8"),
        ("attention_mask", "<u8"),
        ("loss_mask", "<u8"),
        ("target_hidden_states", "<u8"),
        ("target_last_hidden_states", "<u8"),
    ]
)
"""The same record, as a column store reads a whole index."""
TENSORS = ("input_ids", "attention_mask", "loss_mask", "target_hidden_states", "target_last_hidden_states")
"""In the order in which they lie in a shard, and their offsets in a record."""


class Shape(NamedTuple):
    """What a token takes: `n_layers` states of `hidden_size` beside one more of the last layer."""

    n_layers: int
    hidden_size: int

    @property
    def row_bytes(self) -> tuple[int, int, int, int, int]:
        """Bytes a token of each of `TENSORS`."""
        return (4, 1, 1, 2 * self.n_layers * self.hidden_size, 2 * self.hidden_size)

    def offsets(self, start: int, n_tokens: int) -> tuple[int, int, int, int, int]:
        """Return where each of `TENSORS` begins for a sample that begins at `start`.

        >>> Shape(n_layers=3, hidden_size=8).offsets(100, 10)
        (100, 140, 150, 160, 640)
        """
        ids, attention, loss, aux, _ = (n_tokens * size for size in self.row_bytes)
        first = start + ids
        return start, first, first + attention, first + attention + loss, first + attention + loss + aux


def shard_name(number: int) -> str:
    """Return a shard's file name.

    >>> shard_name(3)
    'shard-00003.bin'
    """
    return f"shard-{number:05d}.bin"
