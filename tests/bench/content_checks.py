"""What content checks cost: their time over that of the units they are part of, as `UnitResult` counts it.

SmolLM2 in bfloat16, units of a real run's size, of the demo's real conversations, calibrated by their audit
set and bound to their ids; the second pass over a sample included. The checks of samples run beside the
model, in the writer's thread: their whole time is counted.
"""

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datagen.checks import Calibration, calibrated
from datagen.config import load_config
from datagen.engines.base import Engine
from datagen.engines.ends import ends_of
from datagen.engines.opening import open_engine
from datagen.planning.audit import audit_schema, audit_unit, read_audit, read_calibration
from datagen.planning.preparation import prepare
from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.worker.making import PartMaker
from tests.bench.row import Row

CONFIG = Path("deploy/runs/demo.toml")
BATCH_TOKENS = 2048
UNIT_SAMPLES = 56
UNITS = 3


def run() -> list[Row]:
    """Measure units of a real model, and what of a unit the checks took."""
    config = load_config(["--engine.device", "cpu"], CONFIG, "bench")
    prepared = prepare(config, "bench")
    engine = open_engine(config.engine, prepared.schema)
    shares, milliseconds, bound, looked_at, n_tokens = [], [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        door = LocalDoor(Path(folder))
        maker = PartMaker(engine, door, "bench", "bench", BATCH_TOKENS)
        every = engine.handing_out(audit_schema(prepared.target, "bfloat16"))
        maker.calibration = _calibrated(maker, every, prepared.prompts)
        ends = ends_of(engine, config.engine)
        maker.binding = calibrated(ends, prepared.schema, maker.calibration.audited)
        for number in range(UNITS):
            some = prepared.prompts[number * UNIT_SAMPLES : (number + 1) * UNIT_SAMPLES]
            made = maker.make(Unit(str(number), tuple(some)))
            if made.part is None or made.quarantined:
                raise RuntimeError(f"expected a whole unit, got {made.wrong or made.quarantined}")
            shares.append(made.check_seconds / made.seconds)
            milliseconds.append(1000 * made.check_seconds)
            bound += made.binding.bound + made.binding.again
            looked_at += made.binding.bound + made.binding.again + made.binding.unbound
            n_tokens += made.n_tokens
    name = f"checks of a unit of {n_tokens // UNITS:,} tokens, SmolLM2"
    share = statistics.median(shares)
    return [
        Row(name, statistics.median(milliseconds), "ms", share, "the unit", goal=0.01, at_most=True),
        Row("samples bound to their ids", bound, "samples", bound / looked_at, "all", goal=0.98),
    ]


def _calibrated(maker: PartMaker, engine: Engine, prompts: Sequence[Prompt]) -> Calibration:
    audits = replace(maker, engine=engine, dataset="bench.audit", recapture=False, with_argmax=True)
    dataset = Dataset.create(maker.door, "bench.audit", engine.schema, exist_ok=False)
    made = audits.make(audit_unit(prompts, 8, 128, frozenset()))
    if made.part is None:
        raise RuntimeError(f"expected an audit set, got {made.quarantined}")
    dataset.commit([made.part], [], run_id="bench")
    snapshot = dataset.snapshot()
    return read_calibration(snapshot, read_audit(snapshot))
