"""Exporting a version as speculators' files, over copying the very files that come out.

Both are done by as many workers, and both end when all is on the disk. The export reads every sample's
tensors, compares every block's checksum, puts the slots together, hashes what it writes and lists it; a copy
leaves all of it to the kernel. Samples have 300 tokens of a model of width 7168.
"""

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from tests.bench.row import Row, interleaved, seconds
from tests.bench.store_samples import bench_folder, distinct_samples, wide_schema
from tests.datagen.store.real_parts import commit_samples

DATASET_BYTES = 2**30
PAIRS = 5
FC = ("layer3", "layer31", "layer59")


def run() -> list[Row]:
    """Measure GB/s of what is written."""
    schema = wide_schema()
    with bench_folder() as folder:
        dataset = Dataset.create(LocalDoor(folder), "bench", schema, exist_ok=False)
        commit_samples(dataset, schema, distinct_samples(schema, DATASET_BYTES))
        workers = 2 * len(os.sched_getaffinity(0))
        export(folder, folder / "first", workers)
        files = [path for path in (folder / "first").rglob("*") if path.is_file()]
        ours, baseline, ratio = interleaved(
            partial(export, folder, folder / "again", workers),
            partial(copy, files, folder / "copied", workers),
            PAIRS,
        )
        return [
            Row("shutil.copyfile and fsync", baseline, "GB/s"),
            Row("strata export", ours, "GB/s", ratio, "shutil.copyfile and fsync", goal=0.7),
        ]


def export(root: Path, out: Path, workers: int) -> float:
    """Export all samples anew, and return GB/s."""
    asked = Asked(f"{root}/bench", "speculators", out, fc=FC)
    shutil.rmtree(out, ignore_errors=True)
    took = seconds(lambda: run_export(plan_export(asked), workers))
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / took / 1e9


def copy(files: Sequence[Path], out: Path, workers: int) -> float:
    """Copy files, each synced, and return GB/s."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()

    def one(numbered: tuple[int, Path]) -> int:
        number, file = numbered
        shutil.copyfile(file, out / str(number))
        with open(out / str(number), "rb") as copied:
            os.fsync(copied.fileno())
        return file.stat().st_size

    sizes: list[int] = []

    def all_files() -> None:
        with ThreadPoolExecutor(workers) as pool:
            sizes.extend(pool.map(one, enumerate(files)))

    took = seconds(all_files)
    return sum(sizes) / took / 1e9
