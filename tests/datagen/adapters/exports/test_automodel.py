"""A cache of Automodel's, held against its own arithmetic as it is written down: nothing of ours reads it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file

from datagen.commands.export import command
from datagen.engines.final_norm import model_final_norm
from datagen.errors import ExportError
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.final_norm import apply_norm
from datagen.store.snapshot import Sample
from schemas.errors import StrataError
from schemas.target import WeightsDigest
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.datagen.adapters.exports.target_builders import VOCAB, WIDTH, model_target, save_model
from tests.datagen.adapters.exports.test_deepspec import row_ids

FC = ("layer2", "layer4", "layer5")
NAMES = (*FC, "final_normed")
LENGTHS = (5, 130, 1, 64, 33, 7)
LONGEST = max(LENGTHS)
Read = Mapping[str, torch.Tensor]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(
        tmp_path_factory.mktemp("dataset"), names=NAMES, lengths=LENGTHS, target=model_target()
    )


def export(dataset: str, model: Path, out: Path, shard_bytes: int = 2**30, **more: Any) -> Path:
    """Export in shards of so many bytes, and return the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datagen.adapters.exports.automodel.SHARD_BYTES", shard_bytes)
        run_export(
            plan_export(Asked(dataset, "automodel", out, fc=FC, target_model=str(model), **more)), workers=3
        )
    return out


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def samples_of(folder: Path) -> list[Read]:
    """Read every sample of every shard in their order."""
    shards = [load_file(path) for path in sorted(folder.glob("shard-*.safetensors"))]
    return [
        {name: stack[inside] for name, stack in shard.items()}
        for shard in shards
        for inside in range(len(shard["input_ids"]))
    ]


def stored(dataset: str, folder: Path) -> list[Sample]:
    snapshot = open_dataset(dataset).snapshot()
    return [snapshot.read(sample_id) for sample_id in row_ids(folder)]


def lm_head(model: Path) -> torch.Tensor:
    return load_file(model / "model.safetensors")["lm_head.weight"]


def probabilities(
    sample: Sample, head: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits `[T, V]` moved to the left by one, and their softmax over `tokens`."""
    logits = torch_of(sample.tensors["final_normed"]) @ head.T
    logits = torch.cat([logits[1:], torch.zeros_like(logits[:1])])
    return logits, torch.softmax(logits[:, tokens].float(), -1)


def torch_of(states: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(states.view(np.int16).copy()).view(torch.bfloat16)


def test_tokens_and_masks_are_moved_to_the_left_and_padded(dataset: str, model: Path, tmp_path: Path) -> None:
    folder = export(dataset, model, tmp_path / "out", draft_vocab_size=20)
    read = samples_of(folder)
    assert len(read) == len(LENGTHS)
    for got, sample in zip(read, stored(dataset, folder), strict=True):
        n_tokens = sample.n_tokens
        for name in ("input_ids", "loss_mask"):
            assert got[name].dtype == torch.int64
            moved = [*sample.tokens[name][1:].tolist(), *[0] * (LONGEST - n_tokens + 1)]
            assert got[name].tolist() == moved
        assert got["attention_mask"].dtype == torch.int64
        assert got["attention_mask"].tolist() == [1] * n_tokens + [0] * (LONGEST - n_tokens)
        aux = torch.cat([torch_of(sample.tensors[name]) for name in FC], dim=1)
        assert torch.equal(got["aux_hidden_states"][:n_tokens], aux)
        assert not got["aux_hidden_states"][n_tokens:].any()


def test_probabilities_are_the_softmax_over_the_drafts_tokens_of_the_next_state(
    dataset: str, model: Path, tmp_path: Path
) -> None:
    folder = export(dataset, model, tmp_path / "out", draft_vocab_size=20)
    tokens = torch.tensor(manifest_of(folder)["selected_token_ids"])
    head = lm_head(model)
    n_counted = 0
    for got, sample in zip(samples_of(folder), stored(dataset, folder), strict=True):
        logits, probs = probabilities(sample, head, tokens)
        n_tokens = sample.n_tokens
        assert got["target_probs"].dtype == torch.bfloat16
        assert torch.equal(got["target_probs"][: n_tokens - 1], probs[:-1].to(torch.bfloat16))
        # Where nothing follows, as its own shift leaves it: the softmax of zeros.
        assert (got["target_probs"][n_tokens - 1 :] == torch.tensor(1 / 20).to(torch.bfloat16)).all()
        mask = torch.from_numpy(sample.tokens["loss_mask"][1:] != 0)
        counted = torch.isin(logits.argmax(-1), tokens)[:-1] & mask
        assert got["position_mask"].dtype == torch.bool
        assert got["position_mask"].shape == (LONGEST, 1)
        assert torch.equal(got["position_mask"][: n_tokens - 1, 0], counted)
        assert not got["position_mask"][n_tokens - 1 :].any()
        n_counted += int(counted.sum())
    assert n_counted > 0


def test_without_a_drafts_vocabulary_it_is_the_targets(dataset: str, model: Path, tmp_path: Path) -> None:
    folder = export(dataset, model, tmp_path / "out")
    manifest = manifest_of(folder)
    assert manifest["selected_token_ids"] == list(range(VOCAB))
    assert manifest["draft_vocab_size"] == VOCAB
    for got, sample in zip(samples_of(folder), stored(dataset, folder), strict=True):
        _, probs = probabilities(sample, lm_head(model), torch.arange(VOCAB))
        assert torch.equal(got["target_probs"][: sample.n_tokens - 1], probs[:-1].to(torch.bfloat16))
        masked = torch.from_numpy(sample.tokens["loss_mask"][1:] != 0)
        assert torch.equal(got["position_mask"][: sample.n_tokens - 1, 0], masked)


def test_the_largest_probabilities_sum_to_one_again(dataset: str, model: Path, tmp_path: Path) -> None:
    folder = export(dataset, model, tmp_path / "out", draft_vocab_size=20, probs_top_k=5)
    assert manifest_of(folder)["target_probs_topk"] == 5
    tokens = torch.tensor(manifest_of(folder)["selected_token_ids"])
    for got, sample in zip(samples_of(folder), stored(dataset, folder), strict=True):
        assert "target_probs" not in got
        _, probs = probabilities(sample, lm_head(model), tokens)
        values, indices = torch.topk(probs[:-1], 5)
        n_real = sample.n_tokens - 1
        assert got["target_probs_indices"].dtype == torch.int32
        assert torch.equal(got["target_probs_indices"][:n_real], indices.to(torch.int32))
        summed = (values / values.sum(-1, keepdim=True)).to(torch.bfloat16)
        assert torch.equal(got["target_probs_values"][:n_real], summed)
        assert got["target_probs_indices"][n_real:].tolist() == [[0, 1, 2, 3, 4]] * (LONGEST - n_real)
        assert (got["target_probs_values"][n_real:] == torch.tensor(0.2).to(torch.bfloat16)).all()


def test_as_many_probabilities_as_tokens_are_all_of_them(dataset: str, model: Path, tmp_path: Path) -> None:
    folder = export(dataset, model, tmp_path / "out", draft_vocab_size=20, probs_top_k=20)
    assert manifest_of(folder)["target_probs_topk"] == 0
    assert "target_probs" in samples_of(folder)[0]


def test_samples_are_cut_before_they_are_shifted(dataset: str, model: Path, tmp_path: Path) -> None:
    folder = export(dataset, model, tmp_path / "out", draft_vocab_size=20, sequence_length=30)
    assert manifest_of(folder)["seq_length"] == 30
    tokens = torch.tensor(manifest_of(folder)["selected_token_ids"])
    for got, sample in zip(samples_of(folder), stored(dataset, folder), strict=True):
        n_tokens = min(sample.n_tokens, 30)
        ids = sample.tokens["input_ids"][:n_tokens].tolist()
        assert got["input_ids"].tolist() == ids[1:] + [0] * (30 - n_tokens + 1)
        assert int(got["attention_mask"].sum()) == n_tokens
        _, probs = probabilities(sample, lm_head(model), tokens)
        assert torch.equal(got["target_probs"][: n_tokens - 1], probs[: n_tokens - 1].to(torch.bfloat16))
        assert not got["position_mask"][n_tokens - 1 :].any()


def test_the_manifest_says_what_its_trainer_and_its_reader_ask(
    dataset: str, model: Path, tmp_path: Path
) -> None:
    sample_bytes = LONGEST * (24 + 2 * 3 * WIDTH + 2 * 20 + 1)
    folder = export(dataset, model, tmp_path / "out", shard_bytes=4 * sample_bytes, draft_vocab_size=20)
    manifest = manifest_of(folder)
    assert len(manifest.pop("selected_token_ids")) == 20
    fingerprint = open_dataset(dataset).snapshot().schema.fingerprint
    assert manifest == {
        "format_version": 2,
        "target_model": "tiny",
        "target_vocab_size": VOCAB,
        "draft_vocab_size": 20,
        "seq_length": LONGEST,
        "dtype": "bf16",
        "num_samples": 6,
        "shard_size": 4,
        "target_probs_topk": 0,
        "aux_hidden_dim": 3 * WIDTH,
        "aux_layer_ids": [1, 3, 4],
        "input_data": f"strata:{fingerprint}@1",
        "split": None,
        "shuffle_seed": 0,
        "mask_reasoning_content": False,
        "mask_generation_prompt": False,
    }
    shards = sorted(folder.glob("shard-*"))
    assert [path.name for path in shards] == ["shard-000000.safetensors", "shard-000001.safetensors"]
    keys = {"input_ids", "attention_mask", "loss_mask", "aux_hidden_states", "position_mask", "target_probs"}
    for path in shards:
        with safe_open(path, "pt") as opened:
            assert set(opened.keys()) == keys
    weight = load_file(folder / "target_embeddings.safetensors")["weight"]
    table = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, table.float())


def test_a_final_that_is_stored_is_normed_by_the_models_own_norm(model: Path, tmp_path: Path) -> None:
    reference = make_dataset(tmp_path, names=(*FC, "final"), lengths=(9, 70), target=model_target())
    folder = export(reference, model, tmp_path / "out", draft_vocab_size=20)
    tokens = torch.tensor(manifest_of(folder)["selected_token_ids"])
    norm = model_final_norm(str(model))
    for got, sample in zip(samples_of(folder), stored(reference, folder), strict=True):
        normed = {"final_normed": apply_norm(norm, sample.tensors["final"], "bfloat16")}
        _, probs = probabilities(replace(sample, tensors=normed), lm_head(model), tokens)
        assert torch.equal(got["target_probs"][: sample.n_tokens - 1], probs[:-1].to(torch.bfloat16))


def test_planned_sizes_are_exact(dataset: str, model: Path, tmp_path: Path) -> None:
    asked = Asked(
        dataset,
        "automodel",
        tmp_path / "out",
        fc=FC,
        target_model=str(model),
        draft_vocab_size=9,
        probs_top_k=3,
    )
    plan = plan_export(asked)
    run_export(plan, workers=1)
    for file in plan.files:
        assert (tmp_path / "out" / file.path).stat().st_size == file.size_bytes


def refusal(asked: Asked) -> dict[str, str]:
    with pytest.raises(ExportError) as error:
        plan_export(asked)
    return {problem.where: f"{problem.message} ({problem.repair})" for problem in error.value.problems}


def test_without_the_model_it_says_why_one_is_needed(dataset: str, tmp_path: Path) -> None:
    problems = refusal(Asked(dataset, "automodel", tmp_path / "out", fc=FC))
    assert "expected tiny, whose lm_head makes the probabilities" in problems["--target-model"]


def test_a_model_of_other_sizes_is_refused(tmp_path: Path, model: Path) -> None:
    other = model_target().model_copy(update={"vocab_size": VOCAB - 1})
    reference = make_dataset(tmp_path, names=NAMES, lengths=(5,), target=other)
    problems = refusal(Asked(reference, "automodel", tmp_path / "out", fc=FC, target_model=str(model)))
    assert (
        f"expected a table of {VOCAB - 1} rows of {WIDTH}, got [{VOCAB}, {WIDTH}]"
        in problems["--target-model"]
    )


def test_a_model_of_other_weights_is_refused(tmp_path: Path, model: Path) -> None:
    weights = WeightsDigest(method="sampled_safetensors", sha256="7" * 64)
    reference = make_dataset(
        tmp_path, names=NAMES, lengths=(5,), target=model_target().model_copy(update={"weights": weights})
    )
    with pytest.raises(StrataError, match=r"expected the weights (of tiny|that the states were made with)"):
        plan_export(Asked(reference, "automodel", tmp_path / "out", fc=FC, target_model=str(model)))


def test_a_model_that_caps_its_logits_is_refused(tmp_path: Path, dataset: str) -> None:
    capped = save_model(tmp_path / "capped", final_logit_softcapping=30.0)
    problems = refusal(Asked(dataset, "automodel", tmp_path / "out", fc=FC, target_model=str(capped)))
    assert "got a model that changes them (30.0)" in problems["final_logit_softcapping"]


@pytest.mark.parametrize(
    ("fc", "told"),
    [(("embed", "layer2", "layer4"), "what layers write"), (("layer2", "layer4"), "got 2")],
)
def test_an_input_that_it_cannot_capture_is_refused(
    tmp_path: Path, model: Path, fc: tuple[str, ...], told: str
) -> None:
    reference = make_dataset(tmp_path, names=("embed", *NAMES), lengths=(5,), target=model_target())
    asked = Asked(reference, "automodel", tmp_path / "out", fc=fc, target_model=str(model))
    assert any(told in problem for problem in refusal(asked).values()), refusal(asked)


def test_the_command_takes_all_that_it_needs(
    dataset: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "--dataset",
        dataset,
        "--format",
        "automodel",
        "--out",
        str(tmp_path / "out"),
        "--fc",
        ",".join(FC),
    ]
    more = ["--target-model", str(model), "--sequence-length", "40", "--probs-top-k", "4"]
    assert command([*given, *more, "--draft-vocab-size", "50"]) == 0
    assert "recipe_args.cached_target_path" in capsys.readouterr().out
    assert samples_of(tmp_path / "out")[0]["target_probs_values"].shape == (40, 4)
