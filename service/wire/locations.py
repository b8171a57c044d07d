"""Locations: where the bytes of samples lie, for trainers that see the storage and need no proxy.

An array of a sample is one run of bytes of a file. What it should be is said beside it, so that who reads it
need not trust the file: the crc32c of each block of 64 rows, counted from the sample's start.
"""

from pydantic import NonNegativeInt

from schemas.record import Record


class ArrayLocation(Record):
    """`length` bytes from `offset` of the file at `path` or `url`, which is `size_bytes` long.

    They are an array of `dtype` and `shape`, C order, little-endian. `crc32c` is that of these bytes, `None`
    for a window of a tensor. `blocks` are those of each run of `block_bytes` bytes (the last one is shorter)
    from `block_offset` to `block_end`: the whole blocks that the rows touch.
    """

    name: str
    part_id: str
    path: str | None
    url: str | None
    size_bytes: NonNegativeInt
    offset: NonNegativeInt
    length: NonNegativeInt
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    crc32c: NonNegativeInt | None
    block_offset: NonNegativeInt
    block_end: NonNegativeInt
    block_bytes: NonNegativeInt
    blocks: tuple[NonNegativeInt, ...]


class SampleLocation(Record):
    """Where the arrays of a sample lie; `n_tokens` is the whole sample's length."""

    sample_id: str
    n_tokens: NonNegativeInt
    arrays: tuple[ArrayLocation, ...]


class Locations(Record):
    """Where samples of a version lie, in the order they were asked for."""

    dataset: str
    version: NonNegativeInt
    samples: tuple[SampleLocation, ...]
