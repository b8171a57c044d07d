"""A large sample over loopback, every block checked: over `sendfile` of the same bytes, and `FileResponse`.

Client and server share the machine's cores, so the ratios are what counts.
"""

import http.client
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from tests.bench.row import Row, interleaved, seconds
from tests.bench.serve_processes import Fetcher, file_response, process, sendfile, strata
from tests.bench.store_samples import bench_folder, wide_schema
from tests.builders import random_sample
from tests.datagen.store.real_parts import commit_samples

N_TOKENS = 1638
"""Five tensors of width 7168 in bfloat16: 117 MB."""
PAIRS = 9
N_FIRST_BYTES = 200
N_SLOW = 10

Rate = Callable[[], float]


def run() -> list[Row]:
    """Measure one connection, four, the first byte of a small window, and memory under slow readers."""
    schema = wide_schema()
    with bench_folder() as folder, ExitStack() as stack:
        sample = random_sample(schema, N_TOKENS, 0)
        dataset = Dataset.create(LocalDoor(folder), "bench", schema, exist_ok=False)
        commit_samples(dataset, schema, [sample])
        path = f"/v1/datasets/bench/versions/1/samples/{sample.sample_id}/tensors"
        port, pid = stack.enter_context(process(strata, folder))
        saved = folder / "saved.safetensors"
        size = save(port, path, saved)
        other, _ = stack.enter_context(process(strata, folder))
        bare, _ = stack.enter_context(process(sendfile, saved))
        plain, _ = stack.enter_context(process(file_response, saved))
        one = {at: [Fetcher(at, path, size)] for at in (port, bare, plain)}
        checked, baseline, ratio = interleaved(rate(one[port]), rate(one[bare]), PAIRS)
        rows = [
            Row("bare socket, sendfile, unchecked", baseline, "GB/s"),
            Row("tensors, one connection", checked, "GB/s", ratio, "bare socket", goal=0.4),
        ]
        checked, baseline, ratio = interleaved(rate(one[port]), rate(one[plain]), PAIRS)
        rows += [
            Row("Starlette's FileResponse", baseline, "GB/s"),
            Row("tensors, one connection", checked, "GB/s", ratio, "FileResponse", goal=3.0),
        ]
        four_bare = [Fetcher(bare, path, size) for _ in range(4)]
        for name, ports in (("one process", [port] * 4), ("two processes", [port, other] * 2)):
            fetchers = [Fetcher(at, path, size) for at in ports]
            checked, _, ratio = interleaved(rate(fetchers), rate(four_bare), PAIRS)
            rows.append(
                Row(f"tensors, four connections, {name}", checked, "GB/s", ratio, "four bare sockets")
            )
        return [*rows, *first_byte(port, path), slow_readers(port, pid, path, size)]


def save(port: int, path: str, file: Path) -> int:
    """Write a response's body to a file, and return its size."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    return file.write_bytes(connection.getresponse().read())


def rate(fetchers: list[Fetcher]) -> Rate:
    """Return a measurement of GB/s over all fetchers, each in a thread of its own."""

    def all_at_once() -> None:
        threads = [threading.Thread(target=fetcher.fetch) for fetcher in fetchers[1:]]
        for thread in threads:
            thread.start()
        fetchers[0].fetch()
        for thread in threads:
            thread.join()

    n_bytes = sum(fetcher.size for fetcher in fetchers)
    return lambda: n_bytes / seconds(all_at_once) / 1e9


def first_byte(port: int, path: str) -> list[Row]:
    """Measure until the head of a small window of one tensor, and of all, is there."""
    rows = []
    for name, query, n_bytes in (
        ("one tensor", "?names=final&tokens=100:116&format=raw", 16 * 14336),
        ("all tensors", "?names=embed,layer3,layer31,layer59,final&tokens=100:116", None),
    ):
        size = n_bytes or save(port, path + query, Path("/dev/null"))
        fetcher = Fetcher(port, path + query, size)
        waits = [timed(fetcher) for _ in range(N_FIRST_BYTES)]
        rows.append(
            Row(f"first byte, 16 tokens of {name}", statistics.median(waits), "ms", goal=5.0, at_most=True)
        )
        fetcher.close()
    return rows


def timed(fetcher: Fetcher) -> float:
    """Return the milliseconds until the head is there; the rest is received untimed."""
    began = time.perf_counter()
    at = fetcher.ask()
    waited = time.perf_counter() - began
    fetcher.rest(at)
    return waited * 1e3


def slow_readers(port: int, pid: int, path: str, size: int) -> Row:
    """Measure how much the server grows while clients hold large responses and do not read on."""
    server = psutil.Process(pid)
    before = server.memory_info().rss
    slow = [Fetcher(port, path, size) for _ in range(N_SLOW)]
    for fetcher in slow:
        fetcher.ask()
    time.sleep(1)
    grown = (server.memory_info().rss - before) / 2**20
    for fetcher in slow:
        fetcher.close()
    return Row(f"memory more with {N_SLOW} stalled clients", grown, "MiB", goal=64.0, at_most=True)
