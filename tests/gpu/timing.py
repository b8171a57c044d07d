"""What capture and writing cost beside the bare model, by turns, and how fast the store goes."""

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import torch
import transformers

from datagen.engines.base import Capture
from datagen.engines.hf import HfEngine
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from datagen.store.sample_data import SampleData
from schemas.sample import prompt_id, sample_id
from tests.gpu.models import engine_of, random_model, report

DATASET = "gpu-check"
ROUNDS = 5
Batch = list[list[int]]


def measure(device: str, folder: Path | None) -> list[str]:
    """Print the figures; return what is wrong with what was written."""
    cuda = device == "cuda"
    # 16 layers of an 8B Llama: about 4 GB of weights and 5 x 8 KiB of states a token.
    width, n_layers, n_samples, length, n_batches = (4096, 16, 8, 1024, 8) if cuda else (64, 6, 4, 32, 3)
    config = transformers.LlamaConfig(
        vocab_size=32000 if cuda else 500,
        hidden_size=width,
        intermediate_size=width * 7 // 2,
        num_hidden_layers=n_layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64 // 4 or 1,
        max_position_embeddings=4096,
    )
    model = random_model(config, device)
    names = ("embed", "layer2", f"layer{n_layers // 2}", f"layer{n_layers - 1}", "final")
    engine = engine_of(model, device, names)
    rng = np.random.default_rng(0)
    batches = [
        [rng.integers(0, config.vocab_size, length).tolist() for _ in range(n_samples)]
        for _ in range(n_batches)
    ]
    root = Path(tempfile.mkdtemp(prefix="strata-gpu-", dir=folder))
    try:
        door = LocalDoor(str(root))
        _rounds(engine, batches, door, device)
        _submit_latency(engine, batches[0])
        return _store(engine, batches, door)
    finally:
        shutil.rmtree(root)


def _rounds(engine: HfEngine, batches: list[Batch], door: LocalDoor, device: str) -> None:
    """Time the three ways by turns, so that what else the machine does falls on all."""
    n_tokens = sum(len(ids) for batch in batches for ids in batch)
    ways: dict[str, Callable[[], object]] = {
        "bare model": lambda: _bare(engine, batches),
        "capture": lambda: [len(captures) for captures in _captured(engine, batches)],
        "capture and store": lambda: _written(engine, batches, door),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for work in ways.values():
        work()
    for _ in range(ROUNDS):
        for way, work in ways.items():
            rates[way].append(n_tokens / _seconds(work, device))
    for way, measured in rates.items():
        ratios = [rate / bare for rate, bare in zip(measured, rates["bare model"], strict=True)]
        report(
            way,
            device=engine.info.device,
            tokens_per_second=round(statistics.median(measured)),
            over_bare_model=round(statistics.median(ratios), 4),
            bytes_per_token=engine.schema.token_bytes,
        )


def _bare(engine: HfEngine, batches: list[Batch]) -> None:
    anatomy = engine._loaded.parts()
    with torch.inference_mode():
        for batch in batches:
            anatomy.run(torch.tensor(batch).to(anatomy.input_device, non_blocking=True))


def _captured(engine: HfEngine, batches: list[Batch]) -> Iterator[list[Capture]]:
    """Yield the captures of each batch, the next one submitted already."""
    waiting = engine.submit(batches[0])
    for batch in batches[1:]:
        following = engine.submit(batch)
        yield list(waiting.result())
        waiting = following
    yield list(waiting.result())


def _written(engine: HfEngine, batches: list[Batch], door: LocalDoor) -> Any:
    """Return the closed part of all batches; a thread writes behind the engine."""
    queue: Queue[SampleData | None] = Queue(maxsize=2 * len(batches[0]))
    failures: list[Exception] = []
    with PartWriter(door, DATASET, engine.schema, "gpu-check") as writer:

        def write() -> None:
            while (sample := queue.get()) is not None:
                if not failures:
                    try:
                        writer.add(sample)
                    except Exception as error:  # noqa: BLE001 - raised again below, in the caller's thread
                        failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        for captures in _captured(engine, batches):
            for capture in captures:
                queue.put(_sample(capture))
        queue.put(None)
        thread.join()
        if failures:
            raise failures[0]
        return writer.close()


def _sample(capture: Capture) -> SampleData:
    ids = capture.token_ids.tolist()
    return SampleData(
        sample_id=sample_id(ids),
        prompt_id=prompt_id(ids, {"mode": "capture"}),
        conversation_id=sample_id(ids),
        source="random",
        tokens={"input_ids": capture.token_ids, "loss_mask": np.ones(len(ids), dtype=np.uint8)},
        tensors=capture.tensors,
        norms=capture.norms,
    )


def _submit_latency(engine: HfEngine, batch: Batch) -> None:
    """How long `submit` takes beside the whole: where it copies on a side stream it returns early."""
    held = []
    whole = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        pending = engine.submit(batch)
        held.append(time.perf_counter() - started)
        pending.result()
        whole.append(time.perf_counter() - started)
    report(
        "submit",
        milliseconds=round(1e3 * statistics.median(held), 2),
        until_result_milliseconds=round(1e3 * statistics.median(whole), 2),
    )


def _store(engine: HfEngine, batches: list[Batch], door: LocalDoor) -> list[str]:
    """Time the store alone, and hold what it reads back against what the engine gave."""
    captures = [capture for batch in _captured(engine, batches[:2]) for capture in batch]
    n_bytes = sum(rows.nbytes for capture in captures for rows in capture.tensors.values())
    started = time.perf_counter()
    with PartWriter(door, DATASET, engine.schema, "gpu-check") as writer:
        for capture in captures:
            writer.add(_sample(capture))
        closed = writer.close()
    writing = time.perf_counter() - started
    reader = PartReader(door, DATASET, closed.record.part_id, engine.schema)
    findings = []
    row = 0
    started = time.perf_counter()
    for capture in captures:
        for name, rows in capture.tensors.items():
            read = reader.read_tensor(row, len(capture.token_ids), name)
            if read.tobytes() != rows.tobytes():
                findings.append(f"store {name} at row {row}: expected what was written, got other bytes")
        row += len(capture.token_ids)
    reading = time.perf_counter() - started
    report(
        "store",
        megabytes=round(n_bytes / 1e6, 1),
        written_gb_per_second=round(n_bytes / writing / 1e9, 2),
        read_and_compared_gb_per_second=round(n_bytes / reading / 1e9, 2),
    )
    return findings


def _seconds(work: Callable[[], object], device: str) -> float:
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
