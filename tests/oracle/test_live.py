"""Live reading, by speculators' own dataset, shift and collate code: the very batch that its files make."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from hs_connectors import FileTransfer, HiddenStatesTransfer

from datagen.export.exporting import Asked, plan_export, run_export
from service.trainers.held import Held, open_held
from service.trainers.prepared import Prepared
from service.trainers.speculators_backend import StrataTransfer
from tests.datagen.adapters.exports.builders import make_dataset
from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.test_exports import FC, MAX_LEN, WIDTH
from tests.oracle.wheels import is_cached, source
from tests.service.trainers.places import WAYS, held_in, prepared_from

pytestmark = pytest.mark.skipif(not is_cached("speculators", "0.9.0"), reason="run make oracle")
SPLIT_AT = 8
"""The row at which a validation dataset begins: its rows go on counting."""


class Unavailable:
    """What its dataset gives in place of a sample that it cannot take."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    return root


@pytest.fixture(scope="module")
def held(root: Path) -> Iterator[dict[str, Held]]:
    with held_in(root, "states") as held:
        yield held


@pytest.fixture(scope="module")
def prepared(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared_from(open_held(f"{root}/states"), tmp_path_factory.mktemp("prepared") / "p")


@pytest.fixture(scope="module")
def exported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("files") / "out"
    return run_export(plan_export(Asked(f"{root}/states", "speculators", out)), workers=1).path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", [0, SPLIT_AT], ids=["training", "validation"])
def test_its_trainer_sees_the_batch_that_files_make_to_the_byte(
    held: dict[str, Held], prepared: Prepared, exported: Path, way: str, first: int
) -> None:
    files = collated(exported, FileTransfer(exported / "hidden_states"), first)
    live = collated(prepared.folder, StrataTransfer(held[way], prepared.folder), first)
    assert files.pop("error_records") == live.pop("error_records") == 0
    assert live.keys() == files.keys()
    for name, expected in files.items():
        assert live[name].dtype == expected.dtype, name
        assert live[name].shape == expected.shape, name
        assert torch.equal(bits(live[name]), bits(expected)), name


def test_a_row_of_another_sample_is_not_taken(held: dict[str, Held], prepared: Prepared) -> None:
    class Swapped(StrataTransfer):
        def get_cached(self, file_idx: int) -> dict[str, torch.Tensor]:
            return super().get_cached(file_idx ^ 1 if file_idx < 2 else file_idx)

    with pytest.warns(UserWarning, match="match input ids"):
        batch = collated(prepared.folder, Swapped(held["stored"], prepared.folder), 0)
    assert batch["error_records"] == 2


def collated(folder: Path, transfer: HiddenStatesTransfer, first: int) -> dict[str, Any]:
    """Return one batch of all rows from `first` on, as its own code makes it."""
    package = source("speculators", "0.9.0")
    code = package / "train" / "data.py"
    given = {"SampleUnavailable": Unavailable}
    rows = load_from_disk(folder)
    place = borrow(code, "ArrowDataset._map_to_file_idx", given)
    owner = Owner(
        data=rows.select(range(first, len(rows))),
        transfer=transfer,
        on_missing="raise",
        _map_to_file_idx=lambda index: place(Owner(start_file_idx=first), index),
        hidden_states_dtype=torch.bfloat16,
    )
    raw = borrow(code, "ArrowDataset._get_raw_data", given)
    reader = Owner(_get_raw_data=lambda index: raw(owner, index))
    item = borrow(code, "BaseDataset.__getitem__", given)
    shift = borrow(package / "models" / "eagle3" / "data.py", "shift_batch")
    collate = borrow(code, "CollateFn", given)(MAX_LEN, WIDTH, len(FC), torch.bfloat16, shift)
    batch: dict[str, Any] = collate([item(reader, row) for row in range(len(rows) - first)])
    return batch


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8)
