"""The index at 100,000 samples: opening and locating in a fresh process, and a commit onto it.

The parts hold seven samples each, as those of a model with 60 layers would, so there are 14,286 of them;
tensors are left out, for an index does not look at them.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from datagen.store.append import Append
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from schemas.schema import Schema
from tests.bench.row import Row, seconds
from tests.bench.store_samples import bench_folder
from tests.builders import tiny_schema, tiny_target
from tests.datagen.store.fake_parts import fake_closed, fake_id

N_SAMPLES = 100_000
PART_SAMPLES = 7
COMMIT_PARTS = 64
N_COMMITS = 16
N_OPENS = 5

OPEN = """
import json, random, resource, sys, time
import datagen.store.dataset, datagen.store.local, numpy, pyarrow.parquet

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

before = status("VmRSS:")
started = time.perf_counter()
dataset = datagen.store.dataset.Dataset.open(datagen.store.local.LocalDoor(sys.argv[1]), "bench")
snapshot = dataset.snapshot()
location = snapshot.location(sys.argv[2])
opened = time.perf_counter() - started
started = time.perf_counter()
ids = snapshot.sample_ids
ordered = time.perf_counter() - started
chosen = [ids[random.randrange(len(ids))] for _ in range(1000)]
started = time.perf_counter()
for sample_id in chosen:
    snapshot.location(sample_id)
located = (time.perf_counter() - started) / len(chosen)
print(json.dumps({"open": opened, "order": ordered, "locate": located, "n": len(snapshot),
                  "files": len(snapshot.version.index), "rss": status("VmRSS:") - before,
                  "peak": max(0, status("VmHWM:") - before)}))
"""


def run() -> list[Row]:
    """Measure in a dataset of 100,000 samples, and beside it in one that starts empty."""
    names = ("embed", "layer3", "layer31", "layer59", "final")
    schema = tiny_schema(names, target=tiny_target(n_layers=61))
    with bench_folder() as folder:
        large, fresh = (
            Dataset.create(LocalDoor(folder / name), "bench", schema, exist_ok=False)
            for name in ("large", "fresh")
        )
        first = 0
        while first < N_SAMPLES:
            first = _commit(large, schema, first)
        found = _opened(folder / "large", fake_id(first // 2))
        onto, alone = 0.0, 0.0
        for number in range(N_COMMITS):
            start = first + number * COMMIT_PARTS * PART_SAMPLES
            onto += _timed_commit(large, schema, start)
            alone += _timed_commit(fresh, schema, start)
    mib = 2**20
    return [
        Row(f"open {found['n']:,.0f} samples and locate one", found["open"], "s", goal=0.2, at_most=True),
        Row("memory after that and after ordering all", found["rss"] / mib, "MiB", goal=100, at_most=True),
        Row("peak memory on the way", found["peak"] / mib, "MiB"),
        Row("put all samples in order", found["order"], "s"),
        Row("locate one more", found["locate"] * 1e6, "us"),
        Row(
            f"commit {COMMIT_PARTS * PART_SAMPLES} samples onto it, mean of {N_COMMITS}",
            onto / N_COMMITS,
            "s",
            ratio=onto / alone,
            baseline=f"onto an empty dataset: {alone / N_COMMITS:.3f} s",
            goal=3.0,
            at_most=True,
        ),
    ]


def _commit(dataset: Dataset, schema: Schema, first: int) -> int:
    change, end = _append(dataset, schema, first)
    dataset.committer.commit(change)
    return end


def _timed_commit(dataset: Dataset, schema: Schema, first: int) -> float:
    change, _ = _append(dataset, schema, first)
    return seconds(lambda: dataset.committer.commit(change))


def _append(dataset: Dataset, schema: Schema, first: int) -> tuple[Append, int]:
    """Return an append of 64 parts from sample `first` on, and the first sample after it."""
    end = first + COMMIT_PARTS * PART_SAMPLES
    parts = [
        fake_closed(schema, range(start, start + PART_SAMPLES)) for start in range(first, end, PART_SAMPLES)
    ]
    return Append(dataset.tables, parts, [], schema.fingerprint, "bench"), end


def _opened(root: Path, sample_id: str) -> dict[str, float]:
    """Return the medians of what fresh processes measure; importing numpy and pyarrow does not count."""
    command = [sys.executable, "-c", OPEN, str(root), sample_id]
    runs: list[dict[str, float]] = []
    for _ in range(N_OPENS):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
