"""An export, read by speculators' own dataset, shift and collate code: the batch that its trainer sees."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import load_from_disk

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.snapshot import Sample
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset, states_of
from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.wheels import is_cached, source

pytestmark = pytest.mark.skipif(not is_cached("speculators", "0.9.0"), reason="run make oracle")
MAX_LEN = 512
WIDTH = 8
FC = ("layer2", "layer4", "layer5")


class Unavailable:
    """What its dataset gives in place of a sample that it cannot take."""


def test_its_trainer_sees_the_stored_rows_shifted_and_packed(tmp_path: Path) -> None:
    reference = make_dataset(tmp_path)
    folder = run_export(plan_export(Asked(reference, "speculators", tmp_path / "out")), workers=2).path
    rows = [json.loads(line) for line in (folder / "strata_rows.jsonl").read_text().splitlines()]
    snapshot = open_dataset(reference).snapshot()
    stored = [snapshot.read(row["sample_id"]) for row in rows]
    batch = collated(folder, len(rows))
    assert batch["error_records"] == 0
    expected = packed(stored)
    assert batch.keys() - {"error_records"} == expected.keys()
    for name, value in expected.items():
        assert batch[name].dtype == value.dtype, name
        assert torch.equal(batch[name], value), name


def collated(folder: Path, n_rows: int) -> dict[str, Any]:
    """Return one batch of all rows, as its own code makes it."""
    package = source("speculators", "0.9.0")
    data = package / "train" / "data.py"
    given = {"SampleUnavailable": Unavailable}
    owner = Owner(
        data=load_from_disk(folder),
        transfer=SimpleNamespace(get_cached=lambda row: states_of(folder, row)),
        _map_to_file_idx=lambda index: index,
        hidden_states_dtype=torch.bfloat16,
    )
    raw = borrow(data, "ArrowDataset._get_raw_data", given)
    reader = Owner(_get_raw_data=lambda index: raw(owner, index))
    item = borrow(data, "BaseDataset.__getitem__", given)
    shift = borrow(package / "models" / "eagle3" / "data.py", "shift_batch")
    collate = borrow(data, "CollateFn", given)(MAX_LEN, WIDTH, len(FC), torch.bfloat16, shift)
    batch: dict[str, Any] = collate([item(reader, row) for row in range(n_rows)])
    return batch


def packed(stored: list[Sample]) -> dict[str, torch.Tensor]:
    """Return the same as the format says: pairs of token i+1, state i, target i+1, mask i+1."""
    shifted: dict[str, list[torch.Tensor]] = {}
    for number, sample in enumerate(stored):
        n_pairs = sample.n_tokens - 1
        states = {name: _torch(values) for name, values in sample.tensors.items()}
        pieces = {
            "input_ids": torch.from_numpy(sample.tokens["input_ids"].astype(np.int64))[1:],
            "loss_mask": torch.from_numpy(sample.tokens["loss_mask"].astype(np.int64))[1:],
            "hidden_states": torch.cat([states[name] for name in FC], dim=1)[:-1],
            "verifier_last_hidden_states": states["final"][1:],
            "position_ids": torch.arange(1, sample.n_tokens),
            "document_ids": torch.full((n_pairs,), number),
        }
        for name, piece in pieces.items():
            shifted.setdefault(name, []).append(piece)
    return {
        name: _padded(torch.cat(pieces), -1 if name == "document_ids" else 0)
        for name, pieces in shifted.items()
    }


def _padded(rows: torch.Tensor, filling: int) -> torch.Tensor:
    padding = torch.full((MAX_LEN - len(rows), *rows.shape[1:]), filling, dtype=rows.dtype)
    return torch.cat([rows, padding]).unsqueeze(0)


def _torch(values: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
