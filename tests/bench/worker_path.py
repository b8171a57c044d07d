"""What a run costs beside its model: whole units through a Ray worker (capture, checks, parts, fsync).

Steady state: the model is loaded and warm, two units are in flight, nothing is committed. The baselines take
turns with it in the same process: the bare model on the very same batches, and plain files of the same bytes
with the same fsync.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from datagen.config import RaySettings
from datagen.driver.fleet import Fleet
from datagen.driver.replica import Made
from datagen.engines.opening import read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from datagen.placement import WorkerSettings
from datagen.planning.units import Unit, batches
from datagen.prompts.prompt import Prompt
from datagen.worker.actor import WorkOrder
from schemas.sample import prompt_id, sample_id
from schemas.schema import Schema
from tests.bench.row import Row, interleaved, seconds

MODEL = Path("data/models/smollm2-135m-instruct")
REAL = ("embed", "layer2", "layer15", "layer27", "final")
WIDE = ("embed", "layer3", "layer31", "layer59", "final")
BATCH_TOKENS = 2048
PAIRS = 5
UNIT_SAMPLES = 88
PLAIN_PIECE_BYTES = 8 << 20


def run() -> list[Row]:
    """Measure a real model's capture tax, and a worker whose engine costs next to nothing."""
    cores = os.cpu_count() or 1
    rows = _real_model(cores)
    with tempfile.TemporaryDirectory(dir=".") as disk:
        rows += _synthetic("disk", Path(disk))
    if Path("/dev/shm").is_dir():
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            rows += _synthetic("memory", Path(memory))
    return rows


def _real_model(cores: int) -> list[Row]:
    engine = EngineSettings(model=str(MODEL), device="cpu", threads=cores)
    # Units of the size that the demo's run has: a part's opening and closing fall on so many tokens.
    prompts = _prompts(2 * UNIT_SAMPLES, 192, 256, 49152)
    units = [
        Unit(str(at), tuple(prompts[at : at + UNIT_SAMPLES])) for at in range(0, len(prompts), UNIT_SAMPLES)
    ]
    n_tokens = sum(unit.n_tokens for unit in units)
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).eval().model
    torch.set_num_threads(cores)
    padded = [_padded(batch) for unit in units for batch in batches(unit.prompts, BATCH_TOKENS)]

    def bare() -> float:
        with torch.inference_mode():
            return n_tokens / seconds(lambda: _forward(model, padded))

    with tempfile.TemporaryDirectory() as root:
        fleet = _fleet(root, engine, REAL, float(cores))
        try:
            ours, plain, ratio = interleaved(lambda: n_tokens / _work(fleet, units), bare, PAIRS)
        finally:
            fleet.close()
    return [
        Row("bare SmolLM2, bf16", plain, "tokens/s"),
        Row("run, SmolLM2, 5 tensors written", ours, "tokens/s", ratio, "bare model", goal=0.95),
    ]


def _forward(model: Any, padded: list[torch.Tensor]) -> None:
    for ids in padded:
        model(input_ids=ids, use_cache=False)


def _synthetic(where: str, root: Path) -> list[Row]:
    shape = SyntheticSettings(n_layers=61, hidden_size=7168, vocab_size=160_000)
    engine = EngineSettings(name="synthetic", synthetic=shape)
    prompts = _prompts(64, 200, 360, shape.vocab_size)
    units = [Unit(str(at), tuple(prompts[at : at + 32])) for at in range(0, len(prompts), 32)]
    n_bytes = sum(unit.n_tokens for unit in units) * 2 * shape.hidden_size * len(WIDE)
    fleet = _fleet(str(root / "data"), engine, WIDE, 1.0)

    def ours() -> float:
        rate = n_bytes / _work(fleet, units) / 1e9
        shutil.rmtree(root / "data")
        return rate

    try:
        speed, plain, ratio = interleaved(ours, lambda: _plain_files(root, n_bytes, len(units)), PAIRS)
    finally:
        fleet.close()
    return [
        Row(f"plain files with fsync, {where}", plain, "GB/s"),
        Row(f"run, synthetic engine, {where}", speed, "GB/s", None, None, goal=1.0),
        Row(f"run, synthetic engine, {where}: share", speed, "GB/s", ratio, "plain files"),
    ]


def _fleet(root: str, engine: EngineSettings, names: tuple[str, ...], cpus: float) -> Fleet:
    schema = Schema.declare(read_target(engine), names, "bfloat16")
    order = WorkOrder(root, "bench", "bench", schema, engine, BATCH_TOKENS)
    fleet = Fleet(order, WorkerSettings(count=1, cpus=cpus), RaySettings())
    fleet.start(1)
    return fleet


def _work(fleet: Fleet, units: list[Unit]) -> float:
    """Return the seconds that the units took, from the first handed out to the last made."""
    waiting, begun = list(units), time.perf_counter()
    while waiting or fleet.n_in_flight:
        while waiting and fleet.wanting():
            fleet.hand_out(waiting.pop(0))
        for came in fleet.wait(10.0):
            assert isinstance(came, Made), came
    return time.perf_counter() - begun


def _plain_files(root: Path, n_bytes: int, n_parts: int) -> float:
    piece = np.random.default_rng(0).bytes(PLAIN_PIECE_BYTES)
    folder = root / "plain"
    folder.mkdir()

    def write() -> None:
        for part in range(n_parts):
            for tensor in WIDE:
                _plain_file(folder / f"{part}-{tensor}", n_bytes // n_parts // len(WIDE), piece)

    rate = n_bytes / seconds(write) / 1e9
    shutil.rmtree(folder)
    return rate


def _plain_file(file: Path, n_bytes: int, piece: bytes) -> None:
    with file.open("wb", buffering=0) as stream:
        for start in range(0, n_bytes, len(piece)):
            stream.write(memoryview(piece)[: min(len(piece), n_bytes - start)])
        os.fsync(stream.fileno())


def _prompts(count: int, shortest: int, longest: int, vocab_size: int) -> list[Prompt]:
    rng = np.random.default_rng(0)
    made = []
    for length in np.linspace(shortest, longest, count).astype(int):
        ids = rng.integers(0, vocab_size, length).astype(np.int32)
        tokens = ids.tolist()
        mask = np.ones(length, np.uint8)
        made.append(
            Prompt("bench", "bench", ids, mask, prompt_id(tokens, {"mode": "capture"}), sample_id(tokens))
        )
    return [made[at] for at in rng.permutation(count)]


def _padded(batch: list[Prompt]) -> torch.Tensor:
    longest = max(prompt.n_tokens for prompt in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    for row, prompt in enumerate(batch):
        ids[row, : prompt.n_tokens] = torch.from_numpy(prompt.input_ids.astype(np.int64))
    return ids
