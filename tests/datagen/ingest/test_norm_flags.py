"""ModelOpt's flag of the final norm is held against the last label, by file and over all of them."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from datagen.adapters.foreign_layouts import PRENORM
from datagen.errors import IngestError
from datagen.ingest.plan import plan_ingest
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset
from tests.datagen.ingest.ingest_builders import back, export, ingest, unproven

INPUT = ("layer2", "layer4", "layer5")
FINAL, NORMED = (*INPUT, "final"), (*INPUT, "final_normed")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    target = tiny_target(n_layers=8).model_copy(update={"model_type": "llama"})
    return export(make_dataset(root, target=target), "modelopt", root / "out", fc=INPUT)


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """An export of states before the norm, as its flags say; to be changed."""
    return Path(shutil.copytree(exported / "hidden_states", tmp_path / "files" / "a" / "b" / "dump"))


def flag(files: Iterable[Path], said: bool) -> None:
    for file in files:
        torch.save(torch.load(file, weights_only=True) | {PRENORM: said}, file)


def test_files_whose_flag_contradicts_the_last_label_are_left_out_by_name(
    folder: Path, exported: Path, tmp_path: Path
) -> None:
    shutil.copy(exported / "strata_card.json", folder)
    wrong = sorted(folder.glob("*.pt"))[1:3]
    flag(wrong, False)
    plan, done = ingest(unproven("modelopt", [folder], tmp_path, labels=FINAL))
    assert {one.listed.path for one in done.refused} == set(wrong)
    for one in plan.looked.refused:
        (problem,) = one.problems
        assert (problem.where, problem.kind) == ("hidden_states", "norm_state")
        assert "expected final as --labels says, got final_normed by the file's own flag" in problem.message
    assert len(back(tmp_path)) == len(LENGTHS) - 2


def test_flags_that_all_contradict_it_refuse_the_label(folder: Path, exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported / "strata_card.json", folder)
    flag(folder.glob("*.pt"), False)
    with pytest.raises(IngestError) as told:
        plan_ingest(unproven("modelopt", [folder], tmp_path, labels=FINAL), 2)
    assert f"expected final_normed, as the flag of the final norm says in all of {len(LENGTHS)} files" in str(
        told.value
    )
    assert "write --labels layer2,layer4,layer5,final_normed" in str(told.value)
    assert plan_ingest(unproven("modelopt", [folder], tmp_path, labels=NORMED), 2).looked.n_tokens == sum(
        LENGTHS
    )


@pytest.mark.parametrize("agree", [True, False])
def test_without_labels_the_flags_name_the_last_slot_where_they_agree(
    agree: bool, folder: Path, tmp_path: Path
) -> None:
    source: Any = SimpleNamespace(target=tiny_target(n_layers=8))
    flag(list(folder.iterdir())[:1], agree)
    with pytest.raises(IngestError) as told:
        plan_ingest(unproven("modelopt", [folder], tmp_path), 2, source)
    assert ("the last is final by the files' own flag" in str(told.value)) == agree
