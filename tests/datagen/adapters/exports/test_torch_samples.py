"""speculators-v1, SpecForge, ModelOpt and EAGLE: what their readers find, by the formats as they are.

Nothing of ours reads the files; states are compared by bits, -0.0 is among them.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datagen.adapters.exports.draft_vocabulary import choose_tokens, count_trained
from datagen.adapters.exports.format import Row
from datagen.adapters.exports.modelopt import ModelOptFormat
from datagen.adapters.exports.specforge import SpecForgeFormat
from datagen.commands.export import command
from datagen.errors import ExportError
from datagen.export.exporting import Asked, ExportPlan, plan_export, run_export
from datagen.store.dataset import Dataset
from datagen.store.final_norm import apply_norm
from datagen.store.index import Location
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.snapshot import Sample, Snapshot
from schemas.final_norm import FinalNorm, NormRecipe
from schemas.schema import Schema
from tests.builders import random_sample, row_norms, tiny_target
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset

NAMES = ("embed", "layer2", "layer3", "layer4", "layer5", "layer6", "final", "final_normed")
VOCABULARY = 40


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("dataset"), names=NAMES)


def exported(dataset: str, name: str, tmp_path: Path, **more: Any) -> ExportPlan:
    """Export, and return the plan; what was written has the sizes that it said."""
    plan = plan_export(Asked(dataset, name, tmp_path / "out", **more))
    run_export(plan, workers=2)
    for file in plan.files:
        assert (tmp_path / "out" / file.path).stat().st_size == file.size_bytes
    return plan


def samples_of(plan: ExportPlan) -> list[tuple[Path, Sample]]:
    """Return each row's file and sample, by the list beside them."""
    folder = plan.asked.out
    lines = [json.loads(line) for line in (folder / "strata_rows.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(len(LENGTHS)))
    return [(folder / line["file"], plan.source.snapshot.read(line["sample_id"])) for line in lines]


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(file, mmap=True, weights_only=True)
    return content


def bits(tensor: torch.Tensor) -> NDArray[np.int16]:
    values: NDArray[np.int16] = tensor.contiguous().view(torch.int16).numpy()
    return values


def stored(sample: Sample, *names: str) -> NDArray[np.int16]:
    """Return tensors side by side as bits, `[T, k*H]`."""
    return np.concatenate([sample.tensors[name] for name in names], axis=1).view(np.int16)


def assert_tokens(content: dict[str, Any], sample: Sample) -> None:
    for name in ("input_ids", "loss_mask"):
        assert content[name].dtype == torch.int64
        assert np.array_equal(content[name].numpy(), sample.tokens[name])


def test_speculators_v1_is_a_list_in_the_order_of_the_wiring(dataset: str, tmp_path: Path) -> None:
    plan = exported(dataset, "speculators-v1", tmp_path)
    for row, (file, sample) in enumerate(samples_of(plan)):
        content = read(file)
        assert file.name == f"data_{row}.pt"
        assert content.keys() == {"input_ids", "hidden_states", "loss_mask"}
        assert_tokens(content, sample)
        assert isinstance(content["hidden_states"], list)
        # Its default ids 2, n//2, n-3, n-1 name what layers write.
        slots = ("layer3", "layer5", "layer6", "final")
        for got, name in zip(content["hidden_states"], slots, strict=True):
            assert (got.dtype, got.shape) == (torch.bfloat16, (sample.n_tokens, 8))
            assert np.array_equal(bits(got), stored(sample, name))
    lengths = json.loads((tmp_path / "out" / "sample_lengths.json").read_text())
    assert lengths == {str(row): sample.n_tokens for row, (_, sample) in enumerate(samples_of(plan))}
    config = json.loads((tmp_path / "out" / "data_config.json").read_text())
    assert (config["version"], config["hidden_states"]["layer_ids"]) == ("2.0", [2, 4, 5, 7])


def test_speculators_v1_takes_all_that_ends_in_pt_so_nothing_else_does(dataset: str, tmp_path: Path) -> None:
    plan = exported(dataset, "speculators-v1", tmp_path, fc=("layer2", "layer4"), draft_vocab_size=9)
    ending = [path for path in (tmp_path / "out").rglob("*") if path.name.endswith("pt")]
    assert len(ending) == len(LENGTHS)
    content = read(samples_of(plan)[0][0])
    assert len(content["hidden_states"]) == 3


def test_specforge_has_the_target_in_hidden_state_and_the_input_in_aux(dataset: str, tmp_path: Path) -> None:
    for file, sample in samples_of(exported(dataset, "specforge", tmp_path)):
        content = read(file)
        assert content.keys() == {"input_ids", "loss_mask", "hidden_state", "aux_hidden_state"}
        assert_tokens(content, sample)
        assert content["hidden_state"].shape == (1, sample.n_tokens, 8)
        assert content["aux_hidden_state"].shape == (1, sample.n_tokens, 24)
        assert np.array_equal(bits(content["hidden_state"][0]), stored(sample, "final_normed"))
        assert np.array_equal(
            bits(content["aux_hidden_state"][0]), stored(sample, "layer2", "layer4", "layer5")
        )


@pytest.mark.parametrize("n_rows", [1, 10, 11, 2001, 12_345])
def test_specforge_finds_rows_in_their_order_though_it_sorts_paths_as_texts(n_rows: int) -> None:
    paths = SpecForgeFormat().names([Row(number, where("c", str(number))) for number in range(n_rows)])
    assert sorted(paths) == paths
    assert [int(path.rpartition("_")[2].removesuffix(".ckpt")) for path in paths] == list(range(n_rows))
    assert len({path.partition("/")[0] for path in paths}) == -(-n_rows // 2000)
    assert n_rows > 10 or paths == [f"rows_0-2000/data_{number}.ckpt" for number in range(n_rows)]


def where(conversation_id: str, sample_id: str) -> Location:
    """Return a place of which only the names count."""
    return Location(sample_id, "", conversation_id, "", "", 0, 1, 1, (), (), ())


def test_modelopt_takes_the_state_before_the_norm_and_says_so(tmp_path: Path) -> None:
    llama = tiny_target(n_layers=8).model_copy(update={"model_type": "llama"})
    plan = exported(make_dataset(tmp_path, names=NAMES, target=llama), "modelopt", tmp_path)
    for file, sample in samples_of(plan):
        content = read(file)
        assert content.keys() == {
            "input_ids", "hidden_states", "aux_hidden_states", "loss_mask", "conversation_id",
            "hidden_states_prenorm",
        }  # fmt: skip
        assert_tokens(content, sample)
        assert content["hidden_states_prenorm"] is True
        assert content["conversation_id"] == sample.conversation_id
        assert np.array_equal(bits(content["hidden_states"]), stored(sample, "final"))
        assert np.array_equal(
            bits(content["aux_hidden_states"]), stored(sample, "layer2", "layer4", "layer5")
        )


def test_modelopt_gets_the_normed_state_of_a_target_whose_norm_its_reader_does_not_run(
    dataset: str, tmp_path: Path
) -> None:
    for file, sample in samples_of(exported(dataset, "modelopt", tmp_path)):
        content = read(file)
        assert content["hidden_states_prenorm"] is False
        assert np.array_equal(bits(content["hidden_states"]), stored(sample, "final_normed"))


def test_modelopt_names_files_by_conversations_each_once() -> None:
    def names(*rows: tuple[str, str]) -> list[str]:
        return ModelOptFormat().names([Row(n, where(*row)) for n, row in enumerate(rows)])

    one, two = "1" * 64, "2" * 64
    assert names(("a", one), ("b", two)) == ["hidden_states/a.pt", "hidden_states/b.pt"]
    assert names(("a", one), ("a", two)) == [f"hidden_states/a.{one}.pt", f"hidden_states/a.{two}.pt"]
    cased = names(("a", one), ("A", two))
    assert cased == [f"hidden_states/a.{one}.pt", f"hidden_states/A.{two}.pt"]
    odd = names(("../x", one), (".hid", two), ("ü" * 400, "3" * 64), ("\ud800", "4" * 64))
    assert odd[:2] == ["hidden_states/%2E.%2Fx.pt", "hidden_states/%2Ehid.pt"]
    assert all(len(Path(path).name.encode()) < 255 for path in odd)
    looks = names((f"a.{one}", two), ("a", one), ("a", two), ("%2E", "5" * 64), (".", "6" * 64))
    assert len(set(looks)) == 5


def test_eagle_has_the_last_state_alone_in_half_precision(dataset: str, tmp_path: Path) -> None:
    plan = exported(dataset, "eagle", tmp_path)
    for row, (file, sample) in enumerate(samples_of(plan)):
        content = read(file)
        assert str(file.relative_to(tmp_path / "out")) == f"ge_data/sharegpt_0_10_mufp16/0/data_{row}.ckpt"
        assert content.keys() == {"input_ids", "hidden_state", "loss_mask"}
        assert_tokens(content, sample)
        assert content["hidden_state"].dtype == torch.float16
        rounded = sample.tensors["final_normed"].astype(np.float32).astype(np.float16)
        assert np.array_equal(bits(content["hidden_state"]), rounded.view(np.int16))
    # Its trainer takes every file below, whatever it is called.
    assert sum(path.is_file() for path in (tmp_path / "out" / "ge_data").rglob("*")) == len(LENGTHS)


def test_eagle_refuses_a_state_that_half_precision_cannot_hold(tmp_path: Path) -> None:
    schema = Schema.declare(tiny_target(n_layers=8), ("final_normed",), "bfloat16")
    door = LocalDoor(tmp_path)
    made = Dataset.create(door, "states", schema, exist_ok=True)
    with PartWriter(door, "states", schema, "run") as writer:
        sample = random_sample(schema, 90, 1)
        sample.tensors["final_normed"][77, 3] = ml_dtypes.bfloat16(-70_000)
        rows = sample.tensors["final_normed"]
        writer.add(replace(sample, norms={"final_normed": row_norms(rows)}))
        parts = [writer.close()]
    made.commit(parts, [], run_id="run")
    plan = plan_export(Asked(f"{tmp_path}/states", "eagle", tmp_path / "out"))
    with pytest.raises(ExportError) as error:
        run_export(plan, workers=1)
    (problem,) = error.value.problems
    assert f"sample {sample.sample_id}, token 77, feature 3" == problem.where
    assert "within ±65504" in problem.message
    assert "got -70144" in problem.message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["specforge", "eagle", "modelopt"])
def test_the_normed_state_is_made_from_final_where_the_targets_norm_is_kept(
    name: str, tmp_path: Path
) -> None:
    names = tuple(name for name in NAMES if name != "final_normed")
    reference = make_dataset(tmp_path, names=names)
    norm = keep_norm(reference)
    key = "hidden_states" if name == "modelopt" else "hidden_state"
    for file, sample in samples_of(exported(reference, name, tmp_path)):
        final = sample.tensors["final"]
        normed = apply_norm(norm, final, "bfloat16").view(ml_dtypes.bfloat16)
        got = read(file)[key].reshape(sample.n_tokens, 8)
        expected = normed.astype(np.float32).astype(np.float16) if name == "eagle" else normed
        assert np.array_equal(bits(got), expected.view(np.int16))


def test_what_is_made_is_said_and_is_part_of_which_export_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = make_dataset(tmp_path, names=("layer2", "layer4", "layer5", "final"))
    keep_norm(reference)
    for name in ("eagle", "specforge", "speculators"):
        assert (
            command(["--dataset", reference, "--format", name, "--out", str(tmp_path / name), "--dry-run"])
            == 0
        )
        told = capsys.readouterr().out
        assert ("final_normed is made from final" in told) is (name != "speculators")
        assert ("rounded to float16" in told) is (name == "eagle")
        held_out = (
            "the trainer holds a twentieth out"
            if name == "eagle"
            else "held out, in"
            if name == "speculators"
            else "all of them"
        )
        assert held_out in told
    plan = plan_export(Asked(reference, "specforge", tmp_path / "out"))
    assert plan.source.final_norm is not None
    other = plan.source.final_norm.model_copy(update={"epsilon": 1e-6})
    assert replace(plan, source=replace(plan.source, final_norm=other)).identity != plan.identity


@pytest.mark.parametrize("name", ["specforge", "eagle", "modelopt"])
def test_without_it_is_refused_with_what_is_to_be_done(name: str, tmp_path: Path) -> None:
    reference = make_dataset(tmp_path, names=("embed", "layer2", "layer4", "layer5"))
    with pytest.raises(ExportError) as error:
        plan_export(Asked(reference, name, tmp_path / "out"))
    told = " ".join(f"{problem.message} {problem.repair}" for problem in error.value.problems)
    assert "expected final_normed" in told
    assert "add final_normed to tensors.names" in told


def keep_norm(reference: str) -> FinalNorm:
    opened = open_dataset(reference)
    schema = opened.snapshot().schema
    weight = np.linspace(0.5, 2, 8).astype(ml_dtypes.bfloat16).tobytes()
    recipe = NormRecipe("rms_norm", 1e-5, 0.0, "before_scale")
    norm = FinalNorm.of(recipe, "bfloat16", weight, None, schema.target.weights)
    assert opened.keep_final_norm(schema, norm)
    return norm


def vocabulary_of(snapshot: Snapshot) -> tuple[Sequence[int], Sequence[bool]]:
    """Return what a draft of `VOCABULARY` tokens has, counted here."""
    counts: dict[int, int] = {}
    for sample_id in snapshot.sample_ids:
        tokens = snapshot.read(sample_id).tokens
        for token, trained in zip(tokens["input_ids"].tolist(), tokens["loss_mask"].tolist(), strict=True):
            counts[token] = counts.get(token, 0) + int(trained)
    chosen = sorted(sorted(range(1000), key=lambda token: (-counts.get(token, 0), token))[:VOCABULARY])
    return [token - place for place, token in enumerate(chosen)], [token in chosen for token in range(1000)]


def test_a_vocabulary_stands_in_each_formats_own_form(dataset: str, tmp_path: Path) -> None:
    d2t, t2d = vocabulary_of(open_dataset(dataset).snapshot())
    folders = {}
    for name in ("speculators", "speculators-v1", "specforge", "modelopt"):
        (tmp_path / name).mkdir()
        exported(dataset, name, tmp_path / name, draft_vocab_size=VOCABULARY)
        folders[name] = tmp_path / name / "out"
        lines = (folders[name] / "strata_files.sha256").read_text()
        assert "d2t" in lines or "vocab_mapping/vocab_mapping.pt" in lines
    for name in ("speculators", "speculators-v1"):
        offsets, known = np.load(folders[name] / "d2t.npy"), np.load(folders[name] / "t2d.npy")
        assert (offsets.dtype, known.dtype) == (np.int64, np.bool_)
        assert (offsets.tolist(), known.tolist()) == (d2t, t2d)
    maps = torch.load(folders["specforge"] / "vocab_mapping" / "vocab_mapping.pt", weights_only=True)
    assert (maps["d2t"].dtype, maps["t2d"].dtype) == (torch.int64, torch.bool)
    assert {name: values.tolist() for name, values in maps.items()} == {"d2t": d2t, "t2d": t2d}
    offsets = torch.load(folders["modelopt"] / "d2t.pt", weights_only=True)
    assert (offsets.dtype, offsets.tolist()) == (torch.int64, d2t)


@pytest.mark.parametrize("name", ["speculators-v1", "specforge", "modelopt", "eagle"])
def test_two_exports_of_one_version_are_equal_whoever_wrote_which_file(
    name: str, dataset: str, tmp_path: Path
) -> None:
    size = None if name == "eagle" else VOCABULARY
    listed = []
    for number, workers in enumerate((1, 3)):
        plan = plan_export(Asked(dataset, name, tmp_path / str(number), draft_vocab_size=size))
        run_export(plan, workers)
        listed.append((tmp_path / str(number) / "strata_files.sha256").read_text())
    assert listed[0] == listed[1]


def test_a_vocabulary_that_cannot_be_is_refused(dataset: str, tmp_path: Path) -> None:
    for name, size, told in (
        ("eagle", 9, "a format with a file for it"),
        ("specforge", 1001, "at most 1,000"),
    ):
        with pytest.raises(ExportError) as error:
            plan_export(Asked(dataset, name, tmp_path / "out", draft_vocab_size=size))
        assert told in str(error.value.problems[0])


def test_an_export_with_another_vocabulary_is_another_export(dataset: str, tmp_path: Path) -> None:
    plans = [
        plan_export(Asked(dataset, "specforge", tmp_path, draft_vocab_size=size)) for size in (9, 10, None)
    ]
    assert len({plan.identity for plan in plans}) == 3


def test_tokens_outside_the_vocabulary_are_not_counted_in_silence() -> None:
    ids, mask = np.array([1, 7], np.int32), np.ones(2, np.uint8)
    with pytest.raises(ValueError, match="below 7, got up to 7"):
        count_trained([(ids, mask)], 7)
    assert count_trained([(ids, 1 - mask)], 7).tolist() == [0] * 7
    assert choose_tokens(count_trained([(ids, mask)], 8), 8).d2t.tolist() == [0] * 8
