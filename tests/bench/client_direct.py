"""The client reading files itself: over plain `preadv` of the same ranges, and beside a file a sample.

All lies in the page cache. The other two loaders are what trainers do without Strata: `torch.load` of a
`.ckpt` a sample (speculators before 0.4, SpecForge), and safetensors' `load_file` of an `hs_N.safetensors` a
sample (speculators 0.5, `train/data.py`), whose mapped tensors are then copied into memory.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from service.client.client import Client
from service.client.version import Version
from tests.bench.row import Row, interleaved, seconds
from tests.bench.serve_processes import process, strata
from tests.bench.store_samples import TENSORS, bench_folder, distinct_samples, wide_schema
from tests.datagen.store.real_parts import commit_samples

PART_BYTES = 2**29
PAIRS = 9
N_READS = 100

Load = Callable[[str], object]


def run() -> list[Row]:
    """Measure tensors in random order, then whole samples a second."""
    schema = wide_schema()
    with bench_folder() as folder, ExitStack() as stack:
        samples = distinct_samples(schema, PART_BYTES)
        commit_samples(Dataset.create(LocalDoor(folder), "bench", schema, exist_ok=False), schema, samples)
        port, _ = stack.enter_context(process(strata, folder))
        opened = partial(Client, f"http://127.0.0.1:{port}")
        clients = {
            "direct, every block checked": opened(direct=True),
            "direct, unchecked": opened(direct=True, check=False),
            "http, checked": opened(direct=False),
        }
        versions = {name: stack.enter_context(client).version("bench") for name, client in clients.items()}
        return [*tensors(versions, samples), *whole_samples(versions, samples, folder)]


def tensors(versions: dict[str, Version], samples: Sequence[SampleData]) -> list[Row]:
    """Measure single tensors of samples, in random order, into one buffer."""
    rng = np.random.default_rng(0)
    ids = rng.choice(np.array([sample.sample_id for sample in samples]), N_READS)
    asked = [
        (str(id_), str(name)) for id_, name in zip(ids, rng.choice(np.array(TENSORS), N_READS), strict=True)
    ]
    out = np.empty(samples[0].tensors["final"].nbytes, np.uint8)
    reads = plain_reads(versions["direct, unchecked"], asked)
    plain = rate(lambda: [os.preadv(fd, [out.data], offset) for fd, offset in reads], N_READS * out.nbytes)
    rows: list[Row] = []
    for name, goal in (("direct, unchecked", 0.8), ("direct, every block checked", 0.35)):
        version = versions[name]
        version.locations(sorted(set(ids)))
        fetch = rate(partial(fetch_all, version, asked, out), N_READS * out.nbytes)
        ours, baseline, ratio = interleaved(fetch, plain, PAIRS)
        if not rows:
            rows.append(Row("plain preadv", baseline, "GB/s"))
        rows.append(Row(name, ours, "GB/s", ratio, "plain preadv", goal=goal))
    for fd in {fd for fd, _ in reads}:
        os.close(fd)
    return rows


def fetch_all(version: Version, asked: Sequence[tuple[str, str]], out: NDArray[np.uint8]) -> None:
    """Fetch each tensor of each sample."""
    for sample_id, name in asked:
        version.tensors(sample_id, [name], out=out)


def plain_reads(version: Version, asked: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Return (descriptor, offset) of each read, by the locations that the client goes by."""
    fds: dict[str, int] = {}
    reads = []
    for sample_id, name in asked:
        (place,) = (array for array in version.locations([sample_id])[0].arrays if array.name == name)
        path = str(place.path)
        fds.setdefault(path, os.open(path, os.O_RDONLY) if path not in fds else -1)
        reads.append((fds[path], place.offset))
    return reads


def whole_samples(versions: dict[str, Version], samples: Sequence[SampleData], folder: Path) -> list[Row]:
    """Measure samples of 300 tokens and five tensors (21.5 MB) a second, each loader over the same ones."""
    ids = [sample.sample_id for sample in samples]
    for sample in samples:
        save(sample, folder)
    buffer = np.empty(samples[0].n_tokens * wide_schema().token_bytes + 5 * samples[0].n_tokens, np.uint8)
    loaders: dict[str, Load] = {
        "torch.load of a .ckpt": lambda id_: torch.load(folder / f"{id_}.ckpt", weights_only=True),
        "load_file of a .safetensors": lambda id_: {
            name: tensor.clone() for name, tensor in load_file(folder / f"{id_}.safetensors").items()
        },
    }
    rows = []
    for name, load in loaders.items():
        for ours, version in versions.items():
            fetch: Load = partial(version.tensors, out=buffer)
            mine, theirs, ratio = interleaved(samples_rate(fetch, ids), samples_rate(load, ids), PAIRS)
            if ours == "direct, every block checked":
                rows.append(Row(name, theirs, "samples/s"))
            rows.append(Row(ours, mine, "samples/s", ratio, name))
    return rows


def save(sample: SampleData, folder: Path) -> None:
    """Write a sample as trainers' own formats do: a list of states, and states stacked by token."""
    states = [torch.from_numpy(rows.view(np.uint16)).view(torch.bfloat16) for rows in sample.tensors.values()]
    ids = torch.from_numpy(np.asarray(sample.tokens["input_ids"])).long()
    mask = torch.from_numpy(np.asarray(sample.tokens["loss_mask"])).long()
    record = {"input_ids": ids, "loss_mask": mask, "hidden_states": states}
    torch.save(record, folder / f"{sample.sample_id}.ckpt")
    stacked = {"hidden_states": torch.stack(states, dim=1), "token_ids": ids}
    save_file(stacked, folder / f"{sample.sample_id}.safetensors")


def rate(work: Callable[[], object], n_bytes: int) -> Callable[[], float]:
    """Return a measurement of GB/s."""
    return lambda: n_bytes / seconds(work) / 1e9


def samples_rate(load: Load, ids: Sequence[str]) -> Callable[[], float]:
    """Return a measurement of samples a second."""
    return lambda: len(ids) / seconds(lambda: [load(id_) for id_ in ids])
