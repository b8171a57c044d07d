"""Reading samples in random order, over plain `pread` of the same ranges (all in the page cache)."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray

from datagen.store import bfloat16
from datagen.store.group import tensor_path
from datagen.store.layout import GROUP
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from schemas.schema import Schema
from tests.bench.row import Row, interleaved, seconds
from tests.bench.store_samples import N_TOKENS, bench_folder, distinct_samples, wide_schema

PART_BYTES = 2**30
PAIRS = 9
N_READS = 150

Read = Callable[[int, str], object]


def run() -> list[Row]:
    """Measure unchecked and checked reads of whole samples' tensors, and zarr-python's."""
    schema = wide_schema()
    with bench_folder() as folder:
        door = LocalDoor(folder)
        with PartWriter(door, "bench", schema, "bench") as part:
            for sample in distinct_samples(schema, PART_BYTES):
                part.add(sample)
            closed = part.close()
        reader = PartReader(door, "bench", closed.record.part_id, schema, closed.record_sha256)
        reads = random_reads(schema, closed.record.n_samples)
        out = np.empty((N_TOKENS, schema.tensors[0].width), np.uint16)
        files = folder / "bench" / "parts" / closed.record.part_id
        plain = plain_reader(files, schema, out)
        subjects: list[tuple[str, Read, float | None]] = [
            ("unchecked", store_reader(reader, out, check=False), 0.8),
            ("every block checked", store_reader(reader, out, check=True), 0.35),
            ("zarr-python", zarr_reader(files / GROUP, schema), None),
        ]
        rows: list[Row] = []
        for name, read, goal in subjects:
            ours, baseline, ratio = interleaved(
                partial(rate, reads, read, out.nbytes), partial(rate, reads, plain, out.nbytes), PAIRS
            )
            if not rows:
                rows.append(Row("plain pread", baseline, "GB/s"))
            rows.append(Row(name, ours, "GB/s", ratio, "plain pread", goal=goal))
        door.close()
        return rows


def random_reads(schema: Schema, n_samples: int) -> list[tuple[int, str]]:
    """Return (first row, tensor) of reads in random order."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, n_samples, N_READS) * N_TOKENS
    names = rng.choice(np.array(schema.names), N_READS)
    return [(int(row), str(name)) for row, name in zip(rows, names, strict=True)]


def rate(reads: list[tuple[int, str]], read: Read, n_bytes: int) -> float:
    """Return GB/s over all reads."""

    def all_reads() -> None:
        for row, name in reads:
            read(row, name)

    return len(reads) * n_bytes / seconds(all_reads) / 1e9


def plain_reader(files: Path, schema: Schema, out: NDArray[np.uint16]) -> Read:
    """Return the baseline: open files, one `preadv` a read into `out`."""
    fds = {name: os.open(files / tensor_path(name), os.O_RDONLY) for name in schema.names}
    row_bytes = schema.tensors[0].row_bytes
    buffer = out.reshape(-1).view(np.uint8).data
    return lambda row, name: os.preadv(fds[name], [buffer], row * row_bytes)


def store_reader(reader: PartReader, out: NDArray[np.uint16], *, check: bool) -> Read:
    """Return the store's reader, into `out` too."""
    rows = out.view(bfloat16.NATIVE)
    return lambda row, name: reader.read_tensor(row, N_TOKENS, name, check=check, out=rows)


def zarr_reader(group: Path, schema: Schema) -> Read:
    """Return zarr-python's reader, arrays opened beforehand; it makes a new array a read."""
    bfloat16.register()
    opened = zarr.open_group(group, mode="r")
    arrays = {name: opened[name] for name in schema.names}
    return lambda row, name: arrays[name][row : row + N_TOKENS]
