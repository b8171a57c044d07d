"""speculators' own loader: live from a dataset, direct and over HTTP, beside its own files of the same rows.

The loader is whole: its sampler, `ArrowDataset`, shift, `CollateFn` and worker processes, as release 0.9.0
has them. Files are read as `speculators train` reads them, a dataset as `strata train-speculators` does,
which keeps the memory of large batches, since fresh pages are most of the loader's time there; each is also
measured as the other has it. Beside it reading alone, `get_cached` row by row: files are mapped there, so
that their bytes are copied once to have been read. Skipped where speculators is not there.
"""

import math
import multiprocessing
import os
import shutil
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hs_connectors import FileTransfer, HiddenStatesTransfer

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from deploy.demo.incident.environment import ENVIRONMENT
from deploy.demo.registry import DATA
from schemas.sample import prompt_id, sample_id
from service.trainers.held import open_held
from service.trainers.kept_memory import keep_freed_memory
from service.trainers.launching import Asked as AskedLive
from service.trainers.launching import judged
from service.trainers.preparing import prepare
from service.trainers.speculators_backend import StrataTransfer
from tests.bench.row import Row, interleaved, seconds
from tests.bench.serve_processes import process, strata
from tests.bench.store_samples import bench_folder
from tests.builders import random_sample, tiny_schema, tiny_target
from tests.datagen.store.real_parts import commit_samples

TENSORS = ("layer2", "layer16", "layer29", "final")
WIDTH, N_TOKENS, N_SAMPLES = 4096, 1024, 20
WIDE_BATCH, DEMO_BATCH = 4096, 3 * 384
"""Tokens: four samples of 32 MiB, and three of the demo's 1.7 MB."""
WORKERS = (0, 2)
PAIRS, DROPPED_PAIRS = 9, 5
N_READ = 18
LIVE = {"direct": 0.95, "direct by a service": 0.95, "http": 0.5}
"""The goals, over the trainer's own loader of files."""
READING_GOAL = 2.0


class Place(NamedTuple):
    """One dataset in every form: where it lies, where it is served, prepared, and exported."""

    name: str
    source: str
    served: str
    prepared: Path
    files: Path
    tokens: int

    @property
    def has_goals(self) -> bool:
        """Whether the goals are of it: they are for a large model's width, the demo's 576 is shown beside."""
        return self.name == "wide"

    def transfer(self, way: str, *, keep_memory: bool = False) -> HiddenStatesTransfer:
        """Return one way of reading its rows."""
        if way == "files":
            return FileTransfer(self.files / "hidden_states")
        source = self.source if way == "direct" else self.served
        return StrataTransfer(open_held(source, direct=way != "http"), self.prepared, keep_memory=keep_memory)


Measure = tuple[str, int]
"""A way of reading, and a number of workers."""


def run() -> list[Row]:
    """Measure wide samples, with a warm page cache and without, and the demo's where there are some."""
    if not (ENVIRONMENT / "speculators").is_dir():
        return [Row("not measured: speculators is not there, `make train-demo` brings it", math.nan, "")]
    rows: list[Row] = []
    with bench_folder() as folder, ExitStack() as stack:
        make_wide(folder)
        if (DATA / "demo").is_dir():
            # Written now, as the files beside it: how long ago decides how large the page cache's pieces are,
            # and they how fast is read.
            shutil.copytree(DATA / "demo", folder / "demo")
        port, _ = stack.enter_context(process(strata, folder))
        for name, tokens in (("wide", WIDE_BATCH), ("demo", DEMO_BATCH)):
            if (folder / name).is_dir():
                place = opened(folder, name, f"http://127.0.0.1:{port}", folder, tokens)
                rows += reading(place)
                rows += whole_loaders(place, [folder / name, folder / f"{name}-files"])
    return rows


def make_wide(root: Path) -> None:
    """Commit samples of a large model's width."""
    schema = tiny_schema(TENSORS, target=tiny_target(n_layers=32, hidden_size=WIDTH, vocab_size=100_000))
    buffers = [random_sample(schema, N_TOKENS, seed) for seed in range(2)]
    samples: list[SampleData] = []
    for number in range(N_SAMPLES):
        ids = buffers[number % 2].tokens["input_ids"].astype(np.int32)
        ids[0] = number
        sample = replace(
            buffers[number % 2],
            sample_id=sample_id(ids.tolist()),
            prompt_id=prompt_id(ids.tolist(), {"mode": "capture"}),
            conversation_id=f"conversation-{number}",
            tokens={**buffers[number % 2].tokens, "input_ids": ids},
        )
        samples.append(sample)
    commit_samples(Dataset.create(LocalDoor(root), "wide", schema, exist_ok=False), schema, samples)


def opened(root: Path, name: str, url: str, folder: Path, tokens: int) -> Place:
    """Export a dataset, prepare it, and return all forms of it."""
    source = f"{root}/{name}"
    files = run_export(plan_export(Asked(source, "speculators", folder / f"{name}-files")), 2).path
    held = open_held(source)
    prepared = folder / f"{name}-prepared"
    prepare(prepared, held, judged(held, AskedLive(held.source, prepared))[0])
    return Place(name, held.source, f"{url}#{name}", prepared, files, tokens)


def reading(place: Place) -> list[Row]:
    """Measure reading alone: rows a second, every byte of each in memory."""
    files: Any = place.transfer("files")

    def copied(row: int) -> object:
        return files.get_cached(row)["hidden_states"].clone()

    def rate(read: Callable[[int], object]) -> Callable[[], float]:
        return lambda: N_READ / seconds(lambda: [read(row) for row in range(N_READ)])

    rows: list[Row] = []
    for way in LIVE:
        ours, theirs, ratio = interleaved(rate(place.transfer(way).get_cached), rate(copied), PAIRS)
        if not rows:
            rows.append(Row(f"{place.name}, reading alone: files", theirs, "samples/s"))
        goal = READING_GOAL if way != "http" and place.has_goals else None
        title = f"{place.name}, reading alone: {way}"
        rows.append(Row(title, ours, "samples/s", ratio, "FileTransfer, copied", goal=goal))
    return rows


def whole_loaders(place: Place, droppable: Sequence[Path]) -> list[Row]:
    """Measure batches a second of the whole loader; with files to drop, also without the page cache."""
    rows: list[Row] = []
    with trainer_process(place) as stock, trainer_process(place, keep_memory=True) as live:
        for workers in WORKERS:
            title = f"{place.name}, {workers} workers"
            subjects: dict[str, tuple[Callable[[Measure], float], str, float | None]] = {
                way: (live, way, goal if place.has_goals else None) for way, goal in LIVE.items()
            }
            if not workers:
                subjects["direct, fresh memory"] = stock, "direct", None
                subjects["files, kept memory"] = live, "files", None
            baseline = partial(stock, ("files", workers))
            for way, (ask, read, goal) in subjects.items():
                ours, theirs, ratio = interleaved(partial(ask, (read, workers)), baseline, PAIRS)
                if way == "direct":
                    rows.append(Row(f"{title}: files", theirs, "batches/s"))
                rows.append(
                    Row(f"{title}: {way}", ours, "batches/s", ratio, "its own file loader", goal=goal)
                )
        if droppable:
            rows += dropped(place.name, stock, live, droppable)
    return rows


def dropped(
    name: str, stock: Callable[[Measure], float], live: Callable[[Measure], float], folders: Sequence[Path]
) -> list[Row]:
    """Measure with the files dropped from the page cache before each epoch: the disk decides then."""
    found: dict[str, list[float]] = {way: [] for way in ("files", *LIVE)}
    for _ in range(DROPPED_PAIRS):
        for way, rates in found.items():
            drop(folders)
            rates.append((stock if way == "files" else live)((way, 0)))
    title = f"{name}, page cache dropped"
    rows = [Row(f"{title}: files", statistics.median(found["files"]), "batches/s")]
    for way in LIVE:
        ratio = statistics.median(a / b for a, b in zip(found[way], found["files"], strict=True))
        ours = statistics.median(found[way])
        rows.append(Row(f"{title}: {way}", ours, "batches/s", ratio, "its own file loader"))
    return rows


@contextmanager
def trainer_process(place: Place, *, keep_memory: bool = False) -> Iterator[Callable[[Measure], float]]:
    """Run a process with the trainer's packages, and give the measurement of one epoch in it."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ENVIRONMENT.resolve()), os.getcwd()])
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(
        target=measure_epochs, args=(theirs, place, keep_memory)
    )
    child.start()
    os.environ.clear()
    os.environ.update(before)

    def ask(measure: Measure) -> float:
        ours.send(measure)
        rate: float = ours.recv()
        return rate

    try:
        yield ask
    finally:
        ours.send(None)
        child.join()


def measure_epochs(pipe: Connection, place: Place, keep_memory: bool) -> None:
    """Answer each way of reading and number of workers by batches a second, until there is none."""
    sys.path.insert(0, os.environ["PYTHONPATH"].partition(os.pathsep)[0])
    # Its loader pins memory, and says on a machine without an accelerator that it cannot.
    warnings.simplefilter("ignore")
    if keep_memory:
        keep_freed_memory()
    # Before a transfer is made, as in the trainer.
    import_module("speculators.train.dataloader")
    epochs: dict[Measure, Callable[[], float]] = {}
    while (asked := pipe.recv()) is not None:
        if asked not in epochs:
            way, workers = asked
            epochs[asked] = epoch(place.transfer(way, keep_memory=keep_memory), place, workers)
            epochs[asked]()
        pipe.send(epochs[asked]())


def epoch(transfer: HiddenStatesTransfer, place: Place, workers: int) -> Callable[[], float]:
    """Return a measurement of batches a second over an epoch of the trainer's own loader."""
    loader, _ = import_module("speculators.train.dataloader").create_train_val_loaders(
        data_path=str(place.prepared),
        total_seq_len=place.tokens,
        hidden_states_dtype=import_module("torch").bfloat16,
        transfer=transfer,
        vllm_endpoint="",
        on_missing="raise",
        verifier_name_or_path="",
        request_timeout=None,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=0,
        num_target_layers=3,
        num_workers=workers,
        prefetch_factor=2,
        preprocess=import_module("speculators.models.eagle3.data").shift_batch,
    )

    def whole() -> None:
        for batch in loader:
            if batch["error_records"]:
                raise ValueError(f"expected every sample, got {batch['error_records']} left out")

    return lambda: len(loader) / seconds(whole)


def drop(folders: Sequence[Path]) -> None:
    """Ask the kernel to forget what it keeps of all files, which it does with what is on the disk."""
    os.sync()
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
