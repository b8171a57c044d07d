"""Samples that SpecForge's own collator padded come in as they were before, where their end can be told."""

from pathlib import Path

import pytest
import torch

from datagen.adapters.imports.format import ImportOptions
from datagen.adapters.imports.torch_samples import TORCH_FORMATS
from tests.builders import tiny_target
from tests.oracle.borrow import borrow
from tests.oracle.wheels import is_cached, source

ENDING = 2
SAMPLES = ([7, 8, 9, ENDING], [5, 6, ENDING, 4], [3, 9, 9, 9, 9, 9, ENDING])
"""A text may end at its ending token, or a token behind it, as templates write a line's end."""
WIDTH = 8


@pytest.mark.skipif(not is_cached("specforge", "0.2.0"), reason="run make oracle")
def test_what_its_collator_pads_is_cut(tmp_path: Path) -> None:
    path = source("specforge", "0.2.0") / "data" / "utils.py"
    padded = borrow(path, "DataCollatorWithPadding.paddingtensor2D", {"torch": torch})
    longest = max(map(len, SAMPLES))
    for number, ids in enumerate(SAMPLES):
        tokens, mask = torch.tensor([ids]), torch.tensor([[0, 1] + [1] * (len(ids) - 2)])
        states = torch.randn(1, longest, 4 * WIDTH).bfloat16()
        record = {
            "input_ids": padded(None, tokens, longest)[0],
            "loss_mask": padded(None, mask, longest)[0],
            "aux_hidden_state": states[..., : 3 * WIDTH],
            "hidden_state": states[..., 3 * WIDTH :],
        }
        assert len(record["input_ids"]) == longest
        torch.save(record, tmp_path / f"data_{number}.ckpt")
    specforge = next(known for known in TORCH_FORMATS if known.name == "specforge")
    files = specforge.open([tmp_path], ImportOptions(tiny_target(hidden_size=WIDTH), endings=(ENDING,)))
    rows = [files.read(listed) for listed in files.samples]
    assert [row.token_ids.tolist() for row in rows] == list(SAMPLES)
    assert [{len(slot.rows) for slot in row.slots} for row in rows] == [{len(ids)} for ids in SAMPLES]
