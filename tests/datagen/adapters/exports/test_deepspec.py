"""A target cache of DeepSpec's, read by the format as it is written down: nothing of ours reads it."""

import json
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from datagen.commands.export import command
from datagen.errors import ExportError
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.final_norm import apply_norm
from schemas.final_norm import FinalNorm, NormRecipe
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset

FC = ("embed", "layer4", "final")
NAMES = ("embed", "layer2", "layer4", "layer5", "final", "final_normed")
WIDTH = 8


class Read(NamedTuple):
    """A sample's raw bytes in the five places that a record names."""

    sample_id: int
    ids: bytes
    attention: bytes
    loss: bytes
    aux: bytes
    last: bytes


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("dataset"), names=NAMES)


@pytest.fixture(scope="module")
def folder(dataset: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export in shards of about 8 KiB, which is two or three samples."""
    out = tmp_path_factory.mktemp("export") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datagen.adapters.exports.deepspec.SHARD_BYTES", 8192)
        run_export(plan_export(Asked(dataset, "deepspec", out, fc=FC)), workers=3)
    return out


def records(folder: Path) -> list[Read]:
    """Read a cache as DeepSpec's own dataset does, by hand."""
    manifest = json.loads((folder / "manifest.json").read_text())
    width, n_layers = manifest["hidden_size"], len(manifest["target_layer_ids"])
    index = (folder / "samples.idx").read_bytes()
    assert len(index) == 56 * manifest["num_samples"]
    found = []
    for at in range(0, len(index), 56):
        number, shard, n_tokens, *offsets = struct.unpack_from("<QIIQQQQQ", index, at)
        data = (folder / manifest["shards"][shard]["file_name"]).read_bytes()
        sizes = (4, 1, 1, 2 * n_layers * width, 2 * width)
        pieces = [data[start : start + n_tokens * size] for start, size in zip(offsets, sizes, strict=True)]
        assert [len(piece) for piece in pieces] == [n_tokens * size for size in sizes]
        found.append(Read(number, *pieces))
    return found


def row_ids(folder: Path) -> list[str]:
    lines = (folder / "strata_rows.jsonl").read_text().splitlines()
    return [json.loads(line)["sample_id"] for line in lines]


def test_every_record_leads_to_the_stored_bytes(dataset: str, folder: Path) -> None:
    snapshot = open_dataset(dataset).snapshot()
    read = records(folder)
    assert [record.sample_id for record in read] == list(range(len(LENGTHS)))
    for record, sample_id in zip(read, row_ids(folder), strict=True):
        sample = snapshot.read(sample_id)
        assert record.ids == sample.tokens["input_ids"].astype("<i4").tobytes()
        assert record.attention == b"\1" * sample.n_tokens
        assert record.loss == sample.tokens["loss_mask"].tobytes()
        side_by_side = np.concatenate([sample.tensors[name].view("<u2") for name in FC], axis=1)
        assert record.aux == side_by_side.tobytes()
        assert record.last == sample.tensors["final_normed"].tobytes()


def test_its_manifest_says_the_layers_as_deepspec_counts_them(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    shards = manifest.pop("shards")
    assert manifest == {
        "version": 2,
        "num_samples": len(LENGTHS),
        "num_shards": len(shards),
        "target_layer_ids": [-1, 3, 7],
        "hidden_dtype": "bfloat16",
        "token_dtype": "int32",
        "mask_dtype": "uint8",
        "index_record_size": 56,
        "hidden_size": WIDTH,
        "target_model_name_or_path": "tiny",
        "source_jsonl_paths": [],
        "max_length": 130,
    }
    assert len(shards) > 2
    for number, shard in enumerate(shards):
        assert shard == {"shard_id": number, "file_name": f"shard-{number:05d}.bin"}
    there = {path.name for path in folder.glob("*.bin")}
    assert there == {shard["file_name"] for shard in shards}
    # One sample alone is larger than a shard is to be.
    sizes = [path.stat().st_size for path in folder.glob("*.bin")]
    assert [size for size in sizes if size > 8192] == [130 * (6 + 4 * 2 * WIDTH)]
    assert sum(sizes) == sum(LENGTHS) * (6 + 4 * 2 * WIDTH)


def test_a_final_that_is_stored_is_normed_on_its_way(tmp_path: Path) -> None:
    reference = make_dataset(tmp_path, names=("embed", "layer4", "final"), lengths=(9, 70))
    dataset = open_dataset(reference)
    recipe = NormRecipe("rms_norm", 1e-5, 0.0, "before_scale")
    weight = np.linspace(0.5, 2, WIDTH, dtype="<f4").tobytes()
    norm = FinalNorm.of(recipe, "float32", weight, None, tiny_target().weights)
    dataset.keep_final_norm(dataset.snapshot().schema, norm)
    out = tmp_path / "out"
    run_export(plan_export(Asked(reference, "deepspec", out, fc=("embed", "layer4"))), workers=2)
    snapshot = dataset.snapshot()
    for record, sample_id in zip(records(out), row_ids(out), strict=True):
        final = snapshot.read(sample_id).tensors["final"]
        assert record.last == apply_norm(norm, final, "bfloat16").tobytes() != final.tobytes()


def test_without_fc_it_says_that_its_trainer_has_no_default(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="DeepSpec has no default") as error:
        plan_export(Asked(dataset, "deepspec", tmp_path / "out"))
    (problem,) = error.value.problems
    assert problem.repair == "name the draft's input with --fc, of embed, layer2, layer4, layer5"


@pytest.mark.parametrize(
    ("names", "asked", "told"),
    [
        (("embed", "layer4", "final"), {}, "expected final_normed for deepspec"),
        (NAMES, {"fc": ("layer4", "embed")}, "ascend"),
        (NAMES, {"target": "final"}, "never normed"),
        (NAMES, {"draft_vocab_size": 10}, "which has none"),
        (NAMES, {"splits": ("a", "b")}, "no such split"),
        (NAMES, {"sequence_length": 10}, "expected a format that knows it"),
    ],
)
def test_what_it_cannot_hold_is_refused(
    tmp_path: Path, names: tuple[str, ...], asked: dict[str, object], told: str
) -> None:
    reference = make_dataset(tmp_path, names=names, lengths=(5, 6))
    given = {"fc": ("embed", "layer4"), **asked}
    with pytest.raises(Exception, match=told) as error:
        plan_export(Asked(reference, "deepspec", tmp_path / "out", **given))  # type: ignore[arg-type]
    assert type(error.value).__module__.startswith(("datagen", "schemas"))


def test_states_of_another_dtype_have_no_place(tmp_path: Path) -> None:
    reference = make_dataset(tmp_path, names=NAMES, lengths=(5,), dtype="float16")
    with pytest.raises(ExportError, match="the only float dtype of a target cache, got float16") as error:
        plan_export(Asked(reference, "deepspec", tmp_path / "out", fc=("embed", "layer4")))
    assert [problem.where for problem in error.value.problems] == ["embed", "layer4", "final_normed"]


def test_a_long_sample_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = make_dataset(tmp_path, names=NAMES, lengths=(700, 129))
    monkeypatch.setattr("datagen.adapters.exports.lazy_states.PIECE_BYTES", 2 * WIDTH * 2 * 64)
    out = tmp_path / "out"
    run_export(plan_export(Asked(reference, "deepspec", out, fc=("layer2", "layer5"))), workers=2)
    snapshot = open_dataset(reference).snapshot()
    for record, sample_id in zip(records(out), row_ids(out), strict=True):
        tensors = snapshot.read(sample_id).tensors
        expected = np.concatenate([tensors[name].view("<u2") for name in ("layer2", "layer5")], axis=1)
        assert record.aux == expected.tobytes()


def test_the_command_says_that_all_rows_are_trained_on(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--dataset", dataset, "--format", "deepspec", "--out", str(tmp_path / "out"), "--fc", "layer2"]
    assert command(given) == 0
    said = capsys.readouterr().out
    assert "rows     10, all of them for training" in said
    assert "model.target_layer_ids [1]" in said
