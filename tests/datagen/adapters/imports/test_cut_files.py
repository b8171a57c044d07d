"""Files that somebody cuts or writes again while they are read: a named problem, never a process that dies.

A page of a mapped file that is not there any more kills whoever touches it, by SIGBUS: so nothing is mapped.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from datagen.adapters import safe_loading
from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_files import read_foreign
from datagen.adapters.imports.format import ImportOptions, OpenFiles
from datagen.adapters.imports.prepared_rows import PreparedRows
from datagen.adapters.read_at import read_at
from datagen.export.listed_files import SUMS
from datagen.ingest.beside import read_beside
from datagen.ingest.formats import FORMATS
from datagen.replay.weight_files import read_weights
from tests.datagen.adapters.exports.builders import make_dataset
from tests.datagen.adapters.imports.cut_shards import cut_while_held
from tests.datagen.ingest.ingest_builders import export

OF_FILES = ("speculators", "speculators-v1", "specforge", "modelopt", "eagle")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    names = ("layer2", "layer3", "layer4", "layer5", "layer6", "final", "final_normed")
    # Few samples, longer than a page.
    dataset = make_dataset(root, names, (300, 400))
    for name in OF_FILES:
        export(dataset, name, root / name)
    return root


def opened(name: str, exported: Path, root: Path) -> OpenFiles:
    folder = Path(shutil.copytree(exported / name, root / name, ignore=shutil.ignore_patterns(SUMS)))
    card = read_beside([folder]).card
    assert card is not None
    return FORMATS[name].open([folder], ImportOptions(card.target, padding="keep"))


def cut(file: str | Path) -> None:
    os.truncate(file, 100)


@pytest.mark.parametrize("name", OF_FILES)
def test_a_sample_that_is_held_outlives_its_file(name: str, exported: Path, tmp_path: Path) -> None:
    cut_while_held(opened(name, exported, tmp_path))


@pytest.mark.parametrize("name", OF_FILES)
@pytest.mark.parametrize("states", [True, False])
def test_a_file_that_is_cut_while_it_is_read_is_named(
    name: str, states: bool, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut when its head, or its archive's directory, was found whole."""
    files = opened(name, exported, tmp_path)
    listed = files.samples[0]

    def behind_a_cut(act: Callable[..., Any]) -> Callable[..., Any]:
        def then(*given: Any, **more: Any) -> Any:
            cut(listed.path)
            return act(*given, **more)

        return then

    monkeypatch.setattr("datagen.adapters.unmapped_tensors.read_at", behind_a_cut(read_at))
    monkeypatch.setattr(safe_loading, "_load_torch", behind_a_cut(safe_loading._load_torch))
    with pytest.raises(ForeignFileError) as error:
        files.read(listed, states=states)
    (problem,) = error.value.problems
    assert (problem.where, problem.kind) == (str(listed.path), "damaged")
    assert problem.message.startswith("expected ")


@pytest.mark.parametrize("name", ["hs_0.safetensors", "data_0.pt"])
def test_what_was_read_of_a_file_is_no_view_of_it(name: str, tmp_path: Path) -> None:
    """As `identify` reads them."""
    file = tmp_path / name
    content = {"token_ids": torch.arange(300), "hidden_states": torch.randn(300, 32)}
    if file.suffix == ".safetensors":
        save_file(content, file)
    else:
        torch.save(content, file)
    sample = read_foreign(file)
    before = [slot.rows.copy() for slot in sample.slots]
    cut(file)
    assert all(np.array_equal(slot.rows, rows) for slot, rows in zip(sample.slots, before, strict=True))


def test_a_prepared_dataset_that_is_made_again_meanwhile_is_named(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported / "speculators", tmp_path / "now"))
    rows = PreparedRows(folder)
    held = rows.row(0)
    before = held.token_ids.copy(), held.loss_mask.copy()
    (arrow,) = folder.glob("*.arrow")
    cut(arrow)
    assert np.array_equal(held.token_ids, before[0])
    assert np.array_equal(held.loss_mask, before[1])
    rows._last.batch = None  # as another thread, which has read none of it
    with pytest.raises(ForeignFileError, match="row 1: expected lists of integers, got: "):
        rows.row(1)


def test_a_drafts_weights_are_no_view_of_their_file(tmp_path: Path) -> None:
    save_file({"fc.weight": torch.ones(64, 64)}, tmp_path / "model.safetensors")
    weights, problems = read_weights(tmp_path)
    cut(tmp_path / "model.safetensors")
    assert not problems
    assert weights["fc.weight"].sum() == 64 * 64


def test_a_row_behind_another_batch_is_that_row(tmp_path: Path) -> None:
    """Of several streams of several batches each row is found."""
    datasets = pytest.importorskip("datasets")
    rows = [{"input_ids": [n, n + 1], "loss_mask": [bool(n % 2), True]} for n in range(2500)]
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "prepared", num_shards=2)
    found = PreparedRows(tmp_path / "prepared")
    assert len(found) == 2500
    for number in (0, 999, 1000, 1249, 1250, 2499, 3):
        row = found.row(number)
        assert row.token_ids.tolist() == rows[number]["input_ids"]
        assert row.loss_mask.tolist() == rows[number]["loss_mask"]
