"""Reading a draft's folder: both layouts, and everything that can be wrong with one, told at once."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from datagen.replay.checkpoint import read_draft
from datagen.replay.errors import CheckpointError
from datagen.replay.flags import Flags
from schemas.problem import Problem
from tests.datagen.replay.tiny_drafts import (
    DRAFT_VOCAB,
    HEAD_DIM,
    SLOTS,
    VOCAB,
    WIDTH,
    draft_ids,
    fc_norms,
    input_norm,
    maps,
    plain_config,
    random_weights,
    renamed,
    speculators_config,
    write_draft,
)

Weights = dict[str, Tensor]


def refusal(folder: Path) -> tuple[Problem, ...]:
    """Return the problems of a folder that is no draft."""
    with pytest.raises(CheckpointError) as caught:
        read_draft(folder)
    assert all(problem.severity == "error" for problem in caught.value.problems)
    return caught.value.problems


def only(folder: Path) -> Problem:
    """Return the one problem of a folder."""
    (problem,) = refusal(folder)
    return problem


def test_an_export_of_speculators(tmp_path: Path) -> None:
    weights = random_weights() | input_norm()
    config = speculators_config(norm_before_fc=True, norm_before_residual=True)
    draft = read_draft(write_draft(tmp_path, config, weights))
    assert (draft.layout, draft.width, draft.n_layers, draft.n_slots) == ("speculators", WIDTH, 1, SLOTS)
    assert draft.flags == Flags(
        norm_before_residual=True, norm_before_fc=True, rope=draft.contract.rope, window=None
    )
    assert draft.flags.rope.theta == 1000.0
    assert set(draft.weights) == set(weights) - {"d2t", "t2d"}
    assert torch.equal(draft.target_ids, draft_ids())
    assert [note.where for note in draft.notes] == ["lm_head.weight"] * ("lm_head.weight" not in weights)


def test_specforges_names_are_the_same_draft(tmp_path: Path) -> None:
    weights = random_weights() | fc_norms()
    draft = read_draft(write_draft(tmp_path, plain_config(fc_norm=True), renamed(weights)))
    assert draft.layout == "sglang"
    assert set(draft.weights) == set(weights) - {"d2t", "t2d"}
    assert all(torch.equal(draft.weights[name], weights[name]) for name in draft.weights)


@pytest.mark.parametrize(
    ("old", "new"),
    [("layers.0.", "model.layers.0."), ("fc.", "model.fc."), ("layers.0.", "model.midlayer.")],
)
def test_prefixes_that_servers_strip(tmp_path: Path, old: str, new: str) -> None:
    draft = read_draft(write_draft(tmp_path, plain_config(), renamed(random_weights(), old, new)))
    assert "layers.0.hidden_norm.weight" in draft.weights
    assert "fc.weight" in draft.weights


def test_the_first_names_of_norms_of_slots(tmp_path: Path) -> None:
    norms = {
        f"aux_norm_{name}.weight": weight
        for name, weight in zip(("low", "mid", "high"), fc_norms().values(), strict=True)
    }
    draft = read_draft(write_draft(tmp_path, plain_config(use_aux_norm=True), random_weights() | norms))
    assert draft.flags.fc_norm
    assert torch.equal(draft.weights["fc_norm.2.weight"], norms["aux_norm_high.weight"])


def test_weights_in_two_files_with_an_index(tmp_path: Path) -> None:
    weights = random_weights()
    write_draft(tmp_path, plain_config(), {})
    (tmp_path / "model.safetensors").unlink()
    parts = {"a.safetensors": ("fc.weight",), "b.safetensors": tuple(set(weights) - {"fc.weight"})}
    for name, names in parts.items():
        save_file({one: weights[one] for one in names}, tmp_path / name)
    index = {"weight_map": {one: name for name, names in parts.items() for one in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_draft(tmp_path).n_slots == SLOTS
    (tmp_path / "a.safetensors").unlink()
    kinds = {(problem.where, problem.kind) for problem in refusal(tmp_path)}
    assert ("model.safetensors.index.json", "weights") in kinds


def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    write_draft(tmp_path / "other", plain_config(), random_weights())
    folder = write_draft(tmp_path / "draft", plain_config(), random_weights())
    index = {"weight_map": {"fc.weight": "../other/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "which is not in the folder" in refusal(folder)[0].message


def test_weights_that_torch_saved(tmp_path: Path) -> None:
    weights = random_weights()
    write_draft(tmp_path, plain_config(), {})
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    assert torch.equal(read_draft(tmp_path).weights["fc.weight"], weights["fc.weight"])


class Runs:
    """Makes a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("as_torch_does", [True, False])
def test_nothing_is_unpickled(tmp_path: Path, as_torch_does: bool) -> None:
    mark = tmp_path / "was run"
    folder = write_draft(tmp_path / "draft", plain_config(), {})
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    if as_torch_does:
        torch.save({"fc.weight": Runs(mark)}, file)
    else:
        file.write_bytes(pickle.dumps({"fc.weight": Runs(mark)}))
    problem = only(folder)
    assert (problem.where, problem.kind) == ("pytorch_model.bin", "pickle")
    assert "a pickle of something else" in problem.message
    assert "weights_only" not in str(problem)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [{"fc.weight": [1.0]}, {"model": {"fc.weight": torch.ones(1)}}, torch.ones(3), {"step": 3}],
)
def test_a_file_of_torch_that_holds_no_tensors_by_name(tmp_path: Path, content: object) -> None:
    folder = write_draft(tmp_path, plain_config(), {})
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    assert "expected tensors by name" in only(folder).message


def test_files_that_were_cut(tmp_path: Path) -> None:
    folder = write_draft(tmp_path, plain_config(), random_weights())
    whole = (folder / "model.safetensors").read_bytes()
    for size in (0, 5, 200, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        assert "expected a whole safetensors file" in only(folder).message
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert only(folder).where == "pytorch_model.bin"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ("[1]", "expected a JSON object"),
        ("{}", "expected a JSON object"),
        ("[" * 5000, "expected JSON"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    folder = write_draft(tmp_path, {}, random_weights())
    (folder / "config.json").write_text(text)
    problem = only(folder)
    assert message in problem.message
    assert problem.repair


def test_without_a_config_nothing_is_said_of_the_weights(tmp_path: Path) -> None:
    folder = write_draft(tmp_path, plain_config(), random_weights())
    (folder / "config.json").unlink()
    assert only(folder).message == "expected config.json in the folder, got none"


def test_no_such_folder_no_config_no_weights(tmp_path: Path) -> None:
    assert "expected a folder, got nothing" in only(tmp_path / "nowhere").message
    problems = refusal(tmp_path)
    assert [problem.message for problem in problems] == [
        "expected config.json in the folder, got none",
        "expected model.safetensors or pytorch_model.bin, got neither",
    ]


def test_missing_and_unknown_weights_are_told_together_with_the_maps(tmp_path: Path) -> None:
    weights = random_weights()
    del weights["layers.0.self_attn.q_proj.weight"], weights["norm.weight"], weights["d2t"], weights["t2d"]
    weights["layers.0.self_attn.gate.weight"] = torch.ones(3)
    weights["layers.0.mlp.up_proj.weight"] = torch.ones(3, 4)
    weights["fc.weight"][2, 3] = torch.nan
    found = {problem.kind: problem for problem in refusal(write_draft(tmp_path, plain_config(), weights))}
    assert set(found) == {"weight_missing", "weight_unknown", "shape", "not_finite", "vocabulary"}
    assert (
        "expected norm.weight, layers.0.self_attn.q_proj.weight, got none" in found["weight_missing"].message
    )
    assert "layers.0.self_attn.gate.weight" in found["weight_unknown"].message
    assert found["shape"].where == "layers.0.mlp.up_proj.weight"
    assert "got 1 of" in found["not_finite"].message


@pytest.mark.parametrize(
    ("flag", "missing"), [("fc_norm", "fc_norm.0.weight"), ("norm_before_fc", "input_norm.weight")]
)
def test_a_norm_that_is_on_needs_its_weights(tmp_path: Path, flag: str, missing: str) -> None:
    problem = only(write_draft(tmp_path, plain_config(**{flag: True}), random_weights()))
    assert problem.kind == "weight_missing"
    assert missing in problem.message


def test_a_norm_that_is_off_is_noted_where_its_weights_are_there(tmp_path: Path) -> None:
    draft = read_draft(write_draft(tmp_path, plain_config(), random_weights() | fc_norms()))
    assert [note.where for note in draft.notes] == ["fc_norm"]


def test_a_flag_that_speculators_config_leaves_out_is_noted(tmp_path: Path) -> None:
    config = speculators_config()
    del config["norm_before_residual"]
    draft = read_draft(write_draft(tmp_path, config, random_weights()))
    assert not draft.flags.norm_before_residual
    assert [note.where for note in draft.notes] == ["norm_before_residual"]


def test_the_same_weight_under_two_names(tmp_path: Path) -> None:
    weights = random_weights()
    weights["midlayer.hidden_norm.weight"] = torch.ones(WIDTH)
    assert only(write_draft(tmp_path, plain_config(), weights)).kind == "weight_twice"


def test_the_targets_own_copies_are_passed_over(tmp_path: Path) -> None:
    copies = {"verifier_lm_head.weight": torch.ones(2, 2), "verifier_norm.weight": torch.ones(3)}
    draft = read_draft(write_draft(tmp_path, speculators_config(), random_weights() | copies))
    assert not set(copies) & set(draft.weights)


def test_weights_that_are_no_floats(tmp_path: Path) -> None:
    weights = random_weights()
    weights["fc.weight"] = weights["fc.weight"].to(torch.int8)
    problem = only(write_draft(tmp_path, plain_config(), weights))
    assert (problem.kind, problem.message) == ("dtype", "expected float32, bfloat16 or float16, got int8")


def test_a_quantized_draft(tmp_path: Path) -> None:
    weights = random_weights()
    weights["layers.0.mlp.up_proj.weight_scale"] = torch.ones(1)
    assert only(write_draft(tmp_path, plain_config(), weights)).kind == "quantized"


def test_an_fc_of_another_width(tmp_path: Path) -> None:
    weights = random_weights()
    weights["fc.weight"] = torch.ones(WIDTH, SLOTS * WIDTH - 1)
    problem = only(write_draft(tmp_path, plain_config(), weights))
    assert (problem.where, problem.kind) == ("fc.weight", "width")
    assert f"multiple of {WIDTH}" in problem.message


def test_an_fc_of_another_number_of_slots(tmp_path: Path) -> None:
    config = speculators_config(eagle_aux_hidden_state_layer_ids=[1, 2])
    problem = only(write_draft(tmp_path, config, random_weights()))
    assert problem.message == "expected 2 slots by config.json, got room for 3"


def test_a_width_of_slots_of_its_own(tmp_path: Path) -> None:
    weights = random_weights()
    weights["fc.weight"] = torch.randn(WIDTH, SLOTS * 20)
    weights["embed_tokens.weight"] = torch.randn(VOCAB, WIDTH)
    draft = read_draft(write_draft(tmp_path, plain_config(target_hidden_size=20), weights))
    assert (draft.n_slots, draft.sizes.slot_width) == (SLOTS, 20)


def _absolute(weights: Weights) -> None:
    weights["d2t"] = draft_ids()


def _outside(weights: Weights) -> None:
    weights["d2t"][3] = VOCAB
    del weights["t2d"]


def _negative(weights: Weights) -> None:
    weights["d2t"][3] = -10
    del weights["t2d"]


def _twice(weights: Weights) -> None:
    weights["d2t"][1] = weights["d2t"][0] - 1
    del weights["t2d"]


def _never_loaded(weights: Weights) -> None:
    weights["d2t"] = torch.zeros(DRAFT_VOCAB, dtype=torch.int64)
    weights["t2d"] = torch.ones(VOCAB, dtype=torch.bool)


def _of_another_run(weights: Weights) -> None:
    weights["t2d"] = maps(draft_ids(seed=9))["t2d"]


def _short(weights: Weights) -> None:
    weights["d2t"] = weights["d2t"][:-1].clone()


def _no_marks(weights: Weights) -> None:
    weights["t2d"] = torch.arange(VOCAB)


def _floats(weights: Weights) -> None:
    weights["d2t"] = weights["d2t"].to(torch.float32)


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (_absolute, "d2t", "expected offsets (target id minus draft id), got the target ids themselves"),
        (_outside, "d2t", f"expected target ids below {VOCAB}, got 1 outside of that"),
        (_negative, "d2t", f"expected target ids below {VOCAB}, got 1 outside of that"),
        (_twice, "d2t", "expected another target id for each draft id, got 39 for 40"),
        (_never_loaded, "t2d", f"got {VOCAB} marks, {DRAFT_VOCAB} of them at ids of d2t"),
        (_of_another_run, "t2d", f"got {DRAFT_VOCAB} marks"),
        (_short, "d2t", f"expected {DRAFT_VOCAB} integers, got int64 [{DRAFT_VOCAB - 1}]"),
        (_no_marks, "t2d", f"expected {VOCAB} marks (bool), got int64 [{VOCAB}]"),
        (_floats, "d2t", f"expected {DRAFT_VOCAB} integers, got float32 [{DRAFT_VOCAB}]"),
    ],
)
def test_wrong_maps(tmp_path: Path, change: Callable[[Weights], None], where: str, message: str) -> None:
    weights = random_weights()
    change(weights)
    problem = only(write_draft(tmp_path, plain_config(), weights))
    assert (problem.where, problem.kind) == (where, "vocabulary")
    assert message in problem.message


def test_a_draft_that_knows_every_token_needs_no_map(tmp_path: Path) -> None:
    weights = random_weights()
    del weights["d2t"], weights["t2d"], weights["lm_head.weight"]
    config = plain_config(draft_vocab_size=None)
    draft = read_draft(write_draft(tmp_path, config, weights))
    assert torch.equal(draft.target_ids, torch.arange(VOCAB))
    assert [note.where for note in draft.notes] == ["lm_head.weight"]


def test_a_type_whose_layer_is_not_known(tmp_path: Path) -> None:
    problems = refusal(write_draft(tmp_path, plain_config(model_type="kimi_k2"), random_weights()))
    assert [problem.kind for problem in problems] == ["model_type"]


def test_qwen3_needs_the_norms_of_its_heads(tmp_path: Path) -> None:
    assert "q_norm" in only(write_draft(tmp_path, speculators_config("qwen3"), random_weights())).message
    draft = read_draft(write_draft(tmp_path / "whole", speculators_config("qwen3"), random_weights("qwen3")))
    assert draft.weights["layers.0.self_attn.q_norm.weight"].shape == (HEAD_DIM,)
