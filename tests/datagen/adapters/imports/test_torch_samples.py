"""Layouts of one `torch.save` file a sample that a format's own writers leave beside the usual one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.imports.format import ForeignRow, ImportOptions
from datagen.adapters.imports.torch_samples import TORCH_FORMATS
from tests.builders import tiny_target

WIDTH, N_TOKENS = 8, 5


def read(folder: Path, file_format: str, name: str, content: dict[str, Any]) -> ForeignRow:
    torch.save(content, folder / name)
    known = next(one for one in TORCH_FORMATS if one.name == file_format)
    files = known.open([folder], ImportOptions(tiny_target(hidden_size=WIDTH)))
    (listed,) = files.samples
    return files.read(listed)


def dump() -> dict[str, Any]:
    """Return a dump as ModelOpt's for drafts that read no states of the target: the last state alone."""
    return {
        "input_ids": torch.arange(N_TOKENS),
        "hidden_states": torch.randn(N_TOKENS, WIDTH).bfloat16(),
        "loss_mask": torch.ones(N_TOKENS, dtype=torch.int64),
        "hidden_states_prenorm": False,
        "conversation_id": "c0",
    }


def test_a_dump_of_modelopt_without_the_drafts_input_has_one_slot(tmp_path: Path) -> None:
    content = dump()
    row = read(tmp_path, "modelopt", "c0.pt", content)
    (slot,) = row.slots
    assert slot.name == "hidden_states"
    expected = content["hidden_states"].view(torch.int16).numpy()
    assert np.array_equal(slot.rows.view(np.int16), expected)
    assert row.conversation_id == "c0"


def test_a_dump_with_the_drafts_input_has_its_columns_first(tmp_path: Path) -> None:
    content = dump() | {"aux_hidden_states": torch.randn(N_TOKENS, 2 * WIDTH).bfloat16()}
    names = [slot.name for slot in read(tmp_path, "modelopt", "c0.pt", content).slots]
    assert names == ["aux_hidden_states[:, 0:8]", "aux_hidden_states[:, 8:16]", "hidden_states"]


@pytest.mark.parametrize(
    ("flag", "last"),
    [(True, "final"), (False, "final_normed"), (torch.tensor(True), "final"), ("yes", None), (None, None)],
    ids=str,
)
def test_the_flag_of_the_norm_says_what_the_last_slot_is(
    flag: object, last: str | None, tmp_path: Path
) -> None:
    assert read(tmp_path, "modelopt", "c0.pt", dump() | {"hidden_states_prenorm": flag}).last == last


@pytest.mark.parametrize("file_format", ["speculators-v1", "eagle"])
def test_it_is_no_file_of_another_format(file_format: str, tmp_path: Path) -> None:
    name = {"speculators-v1": "data_0.pt", "eagle": "data_0.ckpt"}[file_format]
    with pytest.raises(ForeignFileError, match="give the --format that wrote it"):
        read(tmp_path, file_format, name, dump())


def test_an_offline_record_of_specforge_without_the_drafts_input_says_which_it_lacks(tmp_path: Path) -> None:
    """SpecForge's command leaves the key with None where nobody asked for the draft's input."""
    content = {
        "input_ids": torch.arange(1, N_TOKENS + 1),
        "loss_mask": torch.ones(N_TOKENS, dtype=torch.int64),
        "hidden_state": torch.randn(1, N_TOKENS, WIDTH),
        "aux_hidden_state": None,
    }
    with pytest.raises(ForeignFileError, match=r"aux_hidden_state: expected states .* got NoneType"):
        read(tmp_path, "specforge", "data_0.ckpt", content)
