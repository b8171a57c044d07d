"""What the tests of ingest share: exports to bring in, and what a person would see of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datagen.export.exporting import Asked as AskedExport
from datagen.export.exporting import plan_export, run_export
from datagen.ingest.asked import Asked
from datagen.ingest.plan import IngestPlan, plan_ingest
from datagen.ingest.writing import Ingested, write
from datagen.stopping import Stopping
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.snapshot import Sample, Snapshot


def export(dataset: str, file_format: str, out: Path, **more: Any) -> Path:
    """Export a dataset, and return the folder."""
    run_export(plan_export(AskedExport(dataset, file_format, out, **more)), workers=2)
    return out


def unproven(file_format: str, files: Sequence[Path], root: Path, **more: Any) -> Asked:
    """Return what is asked for where no model is behind the states; the target is the card's."""
    return Asked(file_format, tuple(files), f"{root}/back", proven=False, **more)


def ingest(asked: Asked, **more: Any) -> tuple[IngestPlan, Ingested]:
    """Plan and write with two workers."""
    plan = plan_ingest(asked, 2, more.pop("source", None))
    with Stopping() as stopping:
        return plan, write(plan, 2, stopping, **more)


def back(root: Path) -> Snapshot:
    """Open what was brought in."""
    return Dataset.open(LocalDoor(root), "back").snapshot()


def assert_same(sample: Sample, expected: Sample, names: Sequence[str]) -> None:
    """Compare two samples bit for bit, the norms up to how they were summed."""
    assert (sample.sample_id, sample.conversation_id) == (expected.sample_id, expected.conversation_id)
    assert tuple(sample.tensors) == tuple(names)
    for name in names:
        mine, theirs = sample.tensors[name], expected.tensors[name]
        assert mine.dtype == theirs.dtype
        # By bits: -0.0 is among the values.
        assert np.array_equal(mine.view(np.uint8), theirs.view(np.uint8)), name
        assert np.allclose(sample.norms[name], expected.norms[name], rtol=1e-5)
    for name in ("input_ids", "loss_mask"):
        assert np.array_equal(sample.tokens[name], expected.tokens[name])
