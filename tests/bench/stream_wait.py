"""A loop over a stream: bytes a second, and the share of time that it waits for data, by prefetch depth.

The baseline reads the same ranges in the same order by plain `preadv`, unchecked, into a batch's memory that
is used again. A step lasts as long as fetching a batch without prefetching, and sleeps, as one on a device
does to the host: unless the next batch is fetched meanwhile, half of the time goes in waiting.
"""

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from datagen.store.dataset import Dataset
from datagen.store.group import tensor_path
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from schemas.schema import Schema
from service.client import Client, Wiring
from service.client.stream import Stream
from service.wire.order import epoch_order
from tests.bench.row import Row, interleaved, seconds
from tests.bench.serve_processes import process, strata
from tests.bench.store_samples import N_TOKENS, bench_folder, distinct_samples, wide_schema
from tests.datagen.store.real_parts import commit_samples

WIRING = Wiring("speculators", ("layer3", "layer31", "layer59"), "final", version="0.9.0")
NAMES = (*WIRING.fc, "final")
N_BYTES = 2**30
TOKENS = 2100
"""Seven samples a batch: 120 MB."""
DEPTHS = (0, 1, 2, 4)
PAIRS = 3


def run() -> list[Row]:
    """Measure both ways of fetching at each depth."""
    schema = wide_schema()
    samples = distinct_samples(schema, N_BYTES)
    read_bytes = len(samples) * N_TOKENS * sum(schema.tensor(name).row_bytes for name in NAMES)
    with bench_folder() as folder, ExitStack() as stack:
        dataset = Dataset.create(LocalDoor(folder), "bench", schema, exist_ok=False)
        commit_samples(dataset, schema, samples)
        port, _ = stack.enter_context(process(strata, folder))
        plain = plain_reader(next((folder / "bench" / "parts").iterdir()), schema, samples)
        rows: list[Row] = []
        for mode in ("direct", "http"):
            client = stack.enter_context(Client(f"http://127.0.0.1:{port}", direct=mode == "direct"))
            rows += measured(mode, partial(stream, client), plain, read_bytes)
        return [Row("plain pread", rows[0].value / (rows[0].ratio or 1), "GB/s"), *rows]


def measured(
    mode: str, opened: Callable[[int], Stream], plain: Callable[[], object], n_bytes: int
) -> list[Row]:
    """Return bytes a second of a loop that only consumes, and the share of waiting beside steps."""

    def bare(depth: int) -> float:
        loop = opened(depth)
        return n_bytes / seconds(lambda: [None for _ in loop]) / 1e9

    def baseline() -> float:
        return n_bytes / seconds(plain) / 1e9

    streamed = opened(0).n_samples * N_TOKENS * sum(wide_schema().tensor(name).row_bytes for name in NAMES)
    assert streamed == n_bytes, f"expected {n_bytes} bytes to be streamed, got {streamed}"
    rows = []
    for depth in DEPTHS:
        ours, _, ratio = interleaved(partial(bare, depth), baseline, PAIRS)
        rows.append(Row(f"{mode}, prefetch {depth}: only consuming", ours, "GB/s", ratio, "plain pread"))
    step = n_bytes / rows[0].value / 1e9 / opened(0).n_packs(0)
    for depth in DEPTHS:
        share = statistics.median(waiting(opened(depth), step) for _ in range(PAIRS))
        rows.append(Row(f"{mode}, prefetch {depth}: waiting, steps of {step * 1e3:.0f} ms", share, "%"))
    return rows


def waiting(loop: Stream, step: float) -> float:
    """Return the share of time, in percent, that a loop waits for data; its first batch left out."""
    batches = iter(loop)
    next(batches)
    began = time.perf_counter()
    waited = 0.0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return 100 * waited / (time.perf_counter() - began)
        time.sleep(step)


def stream(client: Client, depth: int) -> Stream:
    """Open one epoch."""
    return client.stream("bench", 1, wiring=WIRING, seed=0, tokens_per_batch=TOKENS, epochs=1, prefetch=depth)


def plain_reader(part: Path, schema: Schema, samples: list[SampleData]) -> Callable[[], object]:
    """Return the baseline: samples in the epoch's order, a `preadv` a tensor into its place in a batch."""
    rows = {sample.sample_id: number * N_TOKENS for number, sample in enumerate(samples)}
    ids = sorted(rows)
    table = np.array([np.frombuffer(bytes.fromhex(each), np.uint8) for each in ids])
    order = [rows[ids[at]] for at in epoch_order(table, 0, 0)]
    files = {name: os.open(part / tensor_path(name), os.O_RDONLY) for name in NAMES}
    row_bytes = schema.tensors[0].row_bytes
    places = np.zeros((TOKENS // N_TOKENS, len(NAMES), N_TOKENS * row_bytes), np.uint8)

    def read() -> None:
        for number, row in enumerate(order):
            for slot, name in enumerate(NAMES):
                os.preadv(files[name], [places[number % len(places), slot].data], row * row_bytes)

    return read
