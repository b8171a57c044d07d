"""A large sample fetched into memory by the client, every byte's checksum compared: over httpx and requests.

All three ask the same server for the same response, each over a connection that it keeps. The other two hand
out bytes that nothing was compared with; the client hands out named arrays in a buffer of the caller's.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import httpx
import numpy as np
import requests

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from service.client.client import Client
from service.client.version import Version
from tests.bench.row import Row, interleaved, seconds
from tests.bench.serve_processes import process, strata
from tests.bench.store_samples import bench_folder, wide_schema
from tests.builders import random_sample
from tests.datagen.store.real_parts import commit_samples

N_TOKENS = 1638
"""Five tensors of width 7168 in bfloat16: 117 MB."""
PAIRS = 9
N_SMALL = 300


def run() -> list[Row]:
    """Measure whole samples beside both libraries, and how long a small window takes."""
    schema = wide_schema()
    with bench_folder() as folder, ExitStack() as stack:
        sample = random_sample(schema, N_TOKENS, 0)
        commit_samples(Dataset.create(LocalDoor(folder), "bench", schema, exist_ok=False), schema, [sample])
        port, _ = stack.enter_context(process(strata, folder))
        url = f"http://127.0.0.1:{port}"
        client = stack.enter_context(Client(url, direct=False))
        version = client.version("bench")
        path = f"{url}/v1/datasets/bench/versions/1/samples/{sample.sample_id}/tensors"
        other = stack.enter_context(httpx.Client())
        session = stack.enter_context(requests.Session())
        libraries: dict[str, Callable[[], object]] = {
            "httpx .content": lambda: other.get(path).content,
            "requests .content": lambda: session.get(path).content,
        }
        n_bytes = len(session.get(path).content)
        out = np.empty(n_bytes, np.uint8)
        fetch = partial(version.tensors, sample.sample_id, out=out)
        rows = []
        for name, library in libraries.items():
            ours, baseline, ratio = interleaved(rate(fetch, n_bytes), rate(library, n_bytes), PAIRS)
            rows += [
                Row(name, baseline, "GB/s"),
                Row("client, checked", ours, "GB/s", ratio, name, goal=2.0),
            ]
        fresh, _, ratio = interleaved(
            rate(partial(version.tensors, sample.sample_id), n_bytes), rate(fetch, n_bytes), PAIRS
        )
        rows.append(Row("client, checked, into new memory", fresh, "GB/s", ratio, "into its own buffer"))
        return [*rows, small_window(version, sample.sample_id)]


def rate(fetch: Callable[[], object], n_bytes: int) -> Callable[[], float]:
    """Return a measurement of GB/s."""
    return lambda: n_bytes / seconds(fetch) / 1e9


def small_window(version: Version, sample_id: str) -> Row:
    """Measure the median time of 16 tokens of one tensor, 229 KB."""
    fetch = partial(version.tensors, sample_id, ["final"], slice(100, 116))
    waits = [seconds(fetch) * 1e3 for _ in range(N_SMALL)]
    return Row("16 tokens of one tensor", statistics.median(waits), "ms")
