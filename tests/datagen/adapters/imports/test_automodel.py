"""A cache of Automodel's that somebody gave us: its inputs come back unshifted, what is wrong is named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.imports.automodel import AutomodelFiles
from datagen.adapters.imports.format import ImportOptions, OpenFiles
from datagen.commands.ingest import command
from datagen.errors import IngestError
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.datagen.adapters.exports.target_builders import model_target, save_model
from tests.datagen.adapters.exports.test_deepspec import row_ids
from tests.datagen.adapters.imports.cut_shards import cut_while_held

FC = ("layer2", "layer4", "layer5")
LENGTHS = (5, 33, 1, 20)
OPTIONS = ImportOptions(model_target())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A dataset of four samples, and its cache in shards of three."""
    root = tmp_path_factory.mktemp("exported")
    target, model = model_target(), save_model(root / "model")
    reference = make_dataset(root, names=(*FC, "final_normed"), lengths=LENGTHS, target=target)
    asked = Asked(reference, "automodel", root / "out", fc=FC, target_model=str(model), draft_vocab_size=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datagen.adapters.exports.automodel.SHARD_SAMPLES", 3)
        run_export(plan_export(asked), workers=1)
    return reference, root / "out"


@pytest.fixture
def cache(exported: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(exported[1], tmp_path / "out"))


def opened(cache: Path, options: ImportOptions = OPTIONS) -> OpenFiles:
    return AutomodelFiles().open([cache], options)


def errors(files: OpenFiles) -> str:
    wrong = [problem for problem in files.problems if problem.severity == "error"]
    return "\n".join(f"{problem.where} {problem.message}" for problem in wrong)


def refusal(files: OpenFiles, number: int) -> str:
    with pytest.raises(ForeignFileError) as error:
        files.read(files.samples[number])
    return "\n".join(f"{problem.where} {problem.message}" for problem in error.value.problems)


def change(cache: Path, **fields: object) -> None:
    path = cache / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_shard_that_is_cut_while_a_sample_of_it_is_held_ends_nothing(cache: Path) -> None:
    """Of a mapped file the rows would be gone, and the process with them."""
    files = opened(cache)
    cut_while_held(files)
    assert "expected" in refusal(files, 0)


def test_the_inputs_of_an_export_come_back_bit_for_bit(exported: tuple[str, Path]) -> None:
    reference, cache = exported
    files, snapshot = opened(cache), open_dataset(reference).snapshot()
    assert errors(files) == ""
    assert files.claimed == FC
    assert [listed.name for listed in files.samples] == [
        "shard-000000.safetensors[0]",
        "shard-000000.safetensors[1]",
        "shard-000000.safetensors[2]",
        "shard-000001.safetensors[0]",
    ]
    for listed, sample_id in zip(files.samples, row_ids(cache), strict=True):
        row, sample = files.read(listed), snapshot.read(sample_id)
        assert np.array_equal(row.token_ids, sample.tokens["input_ids"])
        assert row.loss_mask is not None
        assert np.array_equal(row.loss_mask, sample.tokens["loss_mask"])
        for slot, name in zip(row.slots, FC, strict=True):
            assert slot.rows.dtype == sample.tensors[name].dtype
            assert slot.rows.tobytes() == sample.tensors[name].tobytes(), name


def test_it_says_what_does_not_come_in(cache: Path) -> None:
    (note,) = opened(cache).problems
    assert note.severity == "note"
    assert "keeps no final state" in note.message


def test_the_first_token_of_anothers_cache_is_asked_for(cache: Path) -> None:
    (cache / "strata_first_tokens.safetensors").unlink()
    assert "expected each sample's first token, which Automodel's shift drops" in refusal(opened(cache), 0)
    files = opened(cache, ImportOptions(OPTIONS.target, first_token=7))
    row = files.read(files.samples[0])
    stored = load_file(cache / "shard-000000.safetensors")["input_ids"][0]
    n_tokens = len(row.token_ids)
    assert row.token_ids.tolist() == [7, *stored[: n_tokens - 1].tolist()]
    assert row.loss_mask is not None
    assert row.loss_mask[0] == 0


def test_the_command_takes_the_first_token(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "strata_first_tokens.safetensors").unlink()
    given = [str(cache), "--format", "automodel", "--dataset", f"{tmp_path}/back", "--unproven"]
    with pytest.raises(IngestError, match="give --first-token with the id that every prompt begins with"):
        command(given)
    assert command([*given, "--first-token", "7"]) == 0
    said = capsys.readouterr().out
    assert "aux_hidden_states[0]: layer2" in said
    assert "keeps no final state" in said
    snapshot = Dataset.open(LocalDoor(tmp_path), "back").snapshot()
    assert [int(snapshot.read(one).tokens["input_ids"][0]) for one in snapshot.sample_ids] == [7] * 4


def test_first_tokens_of_another_number_of_samples_are_refused(cache: Path) -> None:
    ids = {name: torch.zeros(3, dtype=torch.int64) for name in ("input_ids", "loss_mask")}
    save_file(ids, cache / "strata_first_tokens.safetensors")
    assert "expected input_ids [4], got [3]" in errors(opened(cache))


def test_padding_is_kept_only_where_it_is_asked_for(cache: Path) -> None:
    files = opened(cache, ImportOptions(OPTIONS.target, padding="keep"))
    assert [len(files.read(listed).token_ids) for listed in files.samples] == [33] * 4


def test_padding_before_a_token_is_refused(cache: Path) -> None:
    path = cache / "shard-000000.safetensors"
    tensors = load_file(path)
    longest = int(tensors["attention_mask"].sum(1).argmax())
    tensors["attention_mask"][longest, 0] = 0
    save_file(tensors, path)
    assert "got 0 at token 0 of 33" in refusal(opened(cache), longest)


def test_a_cut_shard_costs_its_own_samples(cache: Path) -> None:
    path = cache / "shard-000000.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    files = opened(cache)
    assert errors(files) == ""
    for number in range(3):
        assert "shard-000000.safetensors expected a whole safetensors file" in refusal(files, number)
    assert files.read(files.samples[3]).slots


def test_a_missing_shard_is_a_gap(cache: Path) -> None:
    (cache / "shard-000000.safetensors").unlink()
    assert "expected 2 shards of 4 samples, 3 each, got 1 without this one" in errors(opened(cache))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"format_version": 1}, "expected format_version 2, got 1"),
        ({"dtype": "fp8"}, "expected dtype bf16, fp16, fp32, got 'fp8'"),
        ({"dtype": "fp16"}, "expected F16 [3, 33, 48], as the manifest says, got BF16 [3, 33, 48]"),
        ({"seq_length": 32}, "expected I64 [3, 32], as the manifest says, got I64 [3, 33]"),
        ({"num_samples": 5}, "expected I64 [2, 33], as the manifest says, got I64 [1, 33]"),
        ({"num_samples": 3}, "expected 1 shards of 3 samples, 3 each, got 2"),
        ({"num_samples": 10**15}, "without this one"),
        ({"num_samples": -1}, "expected num_samples above 0, got -1"),
        ({"shard_size": 2}, "expected I64 [2, 33], as the manifest says, got I64 [3, 33]"),
        ({"draft_vocab_size": 21}, "target_probs expected BF16 [3, 33, 21]"),
        (
            {"target_probs_topk": 5},
            "target_probs_indices expected I32 [3, 33, 5], as the manifest says, got none",
        ),
        ({"aux_layer_ids": [1, 3]}, "expected aux_layer_ids of 3 layers"),
        ({"aux_layer_ids": [1, 3, 8]}, "expected layers below 8 of tiny, got [1, 3, 8]"),
        ({"target_vocab_size": 212}, "expected target_vocab_size 211 of tiny, got 212"),
        ({"aux_hidden_dim": 24}, "expected aux_hidden_dim 48 of tiny, got 24"),
    ],
)
def test_a_manifest_that_contradicts_is_refused_whole(
    cache: Path, fields: dict[str, object], expected: str
) -> None:
    change(cache, **fields)
    files = opened(cache)
    assert expected in errors(files)
    assert list(files.samples) == []


def test_a_folder_without_a_manifest_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="got a folder without a manifest"):
        opened(tmp_path)
