"""What content checks cost: their time over that of the units they are part of, as `UnitResult` counts it.

SmolLM2 in bfloat16, units of a real run's size and spread of lengths, calibrated by an audit set of the same
beginnings; the second pass over a sample included. The checks of samples run beside the model, in the
writer's thread: their whole time is counted.
"""

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from datagen.audit import audit_schema, read_audit, read_calibration
from datagen.checks import Calibration
from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.making import PartMaker
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.units import Unit
from schemas.sample import prompt_id, sample_id
from schemas.schema import Schema
from tests.bench.row import Row

MODEL = Path("data/models/smollm2-135m-instruct")
TENSORS = ("embed", "layer2", "layer15", "layer27", "final")
VOCABULARY = 49152
BATCH_TOKENS = 2048
UNIT_SAMPLES = 88
UNITS = 3


def run() -> list[Row]:
    """Measure units of a real model, and what of a unit the checks took."""
    settings = EngineSettings(model=str(MODEL), device="cpu")
    target = read_target(settings)
    engine = open_engine(settings, Schema.declare(target, TENSORS, "bfloat16"))
    shares, milliseconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        door = LocalDoor(Path(folder))
        maker = PartMaker(engine, door, "bench", "bench", BATCH_TOKENS)
        maker.calibration = _calibrated(maker, engine.handing_out(audit_schema(target, "bfloat16")))
        for seed in range(UNITS):
            unit = Unit(str(seed), tuple(_prompts(UNIT_SAMPLES, 32, 512, seed)))
            made = maker.make(unit)
            if made.part is None or made.quarantined:
                raise RuntimeError(f"expected a whole unit, got {made.wrong or made.quarantined}")
            shares.append(made.check_seconds / made.seconds)
            milliseconds.append(1000 * made.check_seconds)
    name = f"checks of a unit of {unit.n_tokens:,} tokens, SmolLM2"
    share = statistics.median(shares)
    return [Row(name, statistics.median(milliseconds), "ms", share, "the unit", goal=0.01, at_most=True)]


def _calibrated(maker: PartMaker, engine: Engine) -> Calibration:
    audits = replace(maker, engine=engine, dataset="bench.audit", recapture=False, with_argmax=True)
    dataset = Dataset.create(maker.door, "bench.audit", engine.schema, exist_ok=False)
    made = audits.make(Unit("audit", tuple(_prompts(8, 128, 128, 99))))
    if made.part is None:
        raise RuntimeError(f"expected an audit set, got {made.quarantined}")
    dataset.commit([made.part], [], run_id="bench")
    snapshot = dataset.snapshot()
    return read_calibration(snapshot, read_audit(snapshot))


def _prompts(count: int, shortest: int, longest: int, seed: int) -> list[Prompt]:
    """Return prompts that begin alike, as under one chat template."""
    rng = np.random.default_rng(seed)
    made = []
    for length in np.linspace(shortest, longest, count).astype(int):
        tokens = [*range(1, 9), *rng.integers(0, VOCABULARY, length - 8).tolist()]
        name, asked = sample_id(tokens), prompt_id(tokens, {"mode": "capture"})
        ids, mask = np.array(tokens, np.int32), np.ones(length, np.uint8)
        made.append(Prompt("bench", "bench", ids, mask, asked, name))
    return made
