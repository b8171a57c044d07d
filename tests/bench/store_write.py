"""Writing a part, checked, summed and synced, over plain files of the same bytes with the same fsync.

Once on the disk, and once in memory (`/dev/shm`), where no disk hides what the checks cost.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import zarr
from safetensors.torch import save_file

from datagen.store import bfloat16
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.sample_data import SampleData
from schemas.schema import Schema
from tests.bench.row import Row, interleaved, seconds
from tests.bench.store_samples import WIDTH, bench_folder, distinct_samples, wide_schema

PART_BYTES = 2**30
MEMORY = Path("/dev/shm")
PAIRS = 5

Write = Callable[[Path], object]


def run() -> list[Row]:
    """Measure a part of 1 GiB, other ways to write it, and the memory that parts of two sizes take."""
    schema = wide_schema()
    rows = []
    with bench_folder() as folder:
        rows += compared(folder, schema, distinct_samples(schema, PART_BYTES))
        rows += memory_rows(folder)
    if MEMORY.is_dir():
        with bench_folder(MEMORY) as folder:
            rows += in_memory(folder, schema, distinct_samples(schema, PART_BYTES // 2))
    return rows


def compared(folder: Path, schema: Schema, samples: list[SampleData]) -> list[Row]:
    """Measure a part against plain files, and other libraries with a quarter of the bytes beside them."""
    few = samples[: len(samples) // 4]
    others: dict[str, Write] = {
        "zarr-python, sharded, no fsync": zarr_writer(schema, few),
        "torch.save a sample, fsync": lambda target: write_torch(target, few),
        "safetensors a sample, fsync": lambda target: write_safetensors(target, few),
    }
    ours, plain, ratio = paired(folder, schema, samples)
    rows = [
        Row("plain files, fsync", plain, "GB/s"),
        Row("a part committed", ours, "GB/s", ratio, "plain files", goal=0.7),
    ]
    for name, write in others.items():
        theirs, _, ratio = interleaved(
            partial(rate, folder, few, write),
            partial(rate, folder, few, lambda target: write_plain(target, few)),
            3,
        )
        rows.append(Row(name, theirs, "GB/s", ratio, "plain files"))
    return rows


def in_memory(folder: Path, schema: Schema, samples: list[SampleData]) -> list[Row]:
    """Measure a part against plain files where writing is a copy in memory."""
    ours, plain, ratio = paired(folder, schema, samples)
    return [
        Row("plain files, in memory", plain, "GB/s"),
        Row("a part committed, in memory", ours, "GB/s", ratio, "plain files, in memory"),
    ]


def paired(folder: Path, schema: Schema, samples: list[SampleData]) -> tuple[float, float, float]:
    """Return the rates of a part and of plain files, and their ratio."""
    return interleaved(
        lambda: rate(folder, samples, lambda target: write_part(target, schema, samples)),
        lambda: rate(folder, samples, lambda target: write_plain(target, samples)),
        PAIRS,
    )


def rate(folder: Path, samples: list[SampleData], write: Write) -> float:
    """Return the GB/s of hidden states at which `write` writes `samples`."""
    target = folder / "written"
    target.mkdir()
    took = seconds(lambda: write(target))
    shutil.rmtree(target)
    return sum(rows.nbytes for sample in samples for rows in sample.tensors.values()) / took / 1e9


def write_part(target: Path, schema: Schema, samples: list[SampleData]) -> None:
    """Write the samples as a part, all checks and records included."""
    with PartWriter(LocalDoor(target), "bench", schema, "bench") as part:
        for sample in samples:
            part.add(sample)
        part.close()


def write_plain(target: Path, samples: list[SampleData]) -> None:
    """Write the same bytes to a file a tensor, and sync the files and their folder."""
    files = {name: os.open(target / name, os.O_WRONLY | os.O_CREAT) for name in samples[0].tensors}
    for sample in samples:
        for name, rows in sample.tensors.items():
            os.write(files[name], rows.reshape(-1).view(np.uint8).data)
    for fd in files.values():
        os.fsync(fd)
        os.close(fd)
    sync(target, os.O_DIRECTORY)


def zarr_writer(schema: Schema, samples: list[SampleData]) -> Callable[[Path], None]:
    """Return a writer of whole shards by zarr-python; the rows of a tensor are put together beforehand."""
    bfloat16.register()
    whole = {name: np.concatenate([sample.tensors[name] for sample in samples]) for name in schema.names}

    def write(target: Path) -> None:
        group = zarr.create_group(target / "data.zarr")
        for name, rows in whole.items():
            padded = -(-len(rows) // 64) * 64
            array = group.create_array(
                name,
                shape=rows.shape,
                dtype="bfloat16",
                chunks=(64, WIDTH),
                shards=(padded, WIDTH),
                compressors=None,
                config={"write_empty_chunks": True},
            )
            array[...] = rows

    return write


def write_torch(target: Path, samples: list[SampleData]) -> None:
    """Write a file a sample by `torch.save`."""
    for number, sample in enumerate(samples):
        torch.save(torch_tensors(sample), target / str(number))
        sync(target / str(number))
    sync(target, os.O_DIRECTORY)


def write_safetensors(target: Path, samples: list[SampleData]) -> None:
    """Write a file a sample by safetensors."""
    for number, sample in enumerate(samples):
        save_file(torch_tensors(sample), target / str(number))
        sync(target / str(number))
    sync(target, os.O_DIRECTORY)


def torch_tensors(sample: SampleData) -> dict[str, torch.Tensor]:
    """Return a sample's tensors as torch's, without a copy."""
    return {
        name: torch.from_numpy(rows.view(np.uint16)).view(torch.bfloat16)
        for name, rows in sample.tensors.items()
    }


def sync(path: Path, flags: int = 0) -> None:
    """Make a file, or a folder's names, durable."""
    fd = os.open(path, os.O_RDONLY | flags)
    os.fsync(fd)
    os.close(fd)


def memory_rows(folder: Path) -> list[Row]:
    """Measure in processes of their own how much memory writing a part takes beyond its samples."""
    found: dict[int, float] = {}
    for mib in (256, 2048):
        target = folder / f"memory-{mib}"
        command = [sys.executable, "-m", "tests.bench.store_memory", str(target), str(mib)]
        found[mib] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        shutil.rmtree(target)
    return [
        Row("peak extra memory, part of 256 MiB", found[256], "MiB"),
        Row("peak extra memory, part of 2 GiB", found[2048], "MiB", goal=64, at_most=True),
    ]
