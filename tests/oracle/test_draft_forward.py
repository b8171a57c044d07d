"""Our forward pass of a draft against the trainers' own, on drafts that they export, with every flag."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from datagen.replay.checkpoint import DraftCheckpoint, read_draft
from datagen.replay.draft import Draft
from tests.datagen.replay.tiny_drafts import DRAFT_VOCAB, VOCAB, body_config, plain_config
from tests.oracle import foreign_drafts
from tests.oracle.wheels import is_cached

TOLERANCE = 1e-4
CHECKPOINT_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}


def _speculators(body: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    return {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT_VOCAB,
        "transformer_layer_config": {**body_config(), **(body or {})},
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": None, "architectures": ["LlamaForCausalLM"]},
        },
        **top,
    }


def _speculators_cases() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {}
    for model_type, values in product(("llama", "qwen3"), product((False, True), repeat=4)):
        flags = dict(zip(CHECKPOINT_FLAGS, values, strict=True))
        if flags["norm_before_fc"] and flags["fc_norm"]:
            continue  # speculators refuses both
        name = "-".join([model_type, *(flag for flag, on in flags.items() if on)])
        cases[name] = _speculators({"model_type": model_type}, **flags)
    cases["whole vocabulary"] = _speculators(draft_vocab_size=VOCAB)
    cases["two slots"] = _speculators(eagle_aux_hidden_state_layer_ids=[1, 3])
    cases["five slots, normed"] = _speculators(eagle_aux_hidden_state_layer_ids=[0, 1, 2, 3, 4], fc_norm=True)
    cases["two layers"] = _speculators({"num_hidden_layers": 2}, norm_output=True)
    cases["biases"] = _speculators({"attention_bias": True, "mlp_bias": True})
    cases["gelu"] = _speculators({"hidden_act": "gelu"})
    for name, rope in SCALINGS.items():
        cases[f"rope {name}"] = _speculators({"rope_parameters": {**rope, "rope_theta": 1000.0}})
    window = {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 3}
    cases["window"] = _speculators({**window, "layer_types": ["sliding_attention"]})
    cases["window of one layer of two"] = _speculators(
        {**window, "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}
    )
    return cases


def _specforge_cases() -> dict[str, dict[str, Any]]:
    own = {"pad_token_id": 0, "architectures": ["LlamaForCausalLMEagle3"]}
    cases = {
        "plain": plain_config(**own, norm_output=True),
        "norms of slots": plain_config(**own, norm_output=True, fc_norm=True),
        "head without norm": plain_config(**own, norm_output=False),
        "norms, head without": plain_config(**own, norm_output=False, fc_norm=True),
    }
    for name in ("linear", "llama3"):
        rope = {**SCALINGS[name], "rope_theta": 1000.0}
        cases[f"rope {name}"] = plain_config(**own, norm_output=True, rope_parameters=rope)
    return cases


SPECULATORS, SPECFORGE = _speculators_cases(), _specforge_cases()


def _on(name: str) -> list[str]:
    return [flag for flag in CHECKPOINT_FLAGS if SPECULATORS[name].get(flag)]


@pytest.fixture(scope="module")
def speculators_drafts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made("speculators", "0.9.0", SPECULATORS, tmp_path_factory)


@pytest.fixture(scope="module")
def specforge_drafts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made("specforge", "0.2.0", SPECFORGE, tmp_path_factory)


def _made(system: str, version: str, cases: dict[str, Any], factory: pytest.TempPathFactory) -> Path:
    if not is_cached(system, version):
        pytest.fail(f"{system} {version} is not in the oracle's cache: run make oracle")
    folder = factory.mktemp(system)
    foreign_drafts.make(system, folder, cases)
    return folder


def _differences(draft: Draft, run: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """(ours, theirs) of each step, without the rows at a conversation's end that have no true token left."""
    lengths = run["lengths"].tolist()
    inside = torch.cat([torch.arange(length) for length in lengths])
    left = torch.cat([torch.full((length,), length) for length in lengths]) - inside
    n_steps = foreign_drafts.N_STEPS
    steps = draft.chain(run["ids"], run["states"], run["positions"], n_steps, lengths=lengths)
    return [
        (output.logits[left > step], run[f"logits.{step}"][left > step]) for step, output in enumerate(steps)
    ]


def _read(folder: Path, name: str) -> tuple[DraftCheckpoint, dict[str, Tensor]]:
    return read_draft(folder / name), load_file(folder / f"{name}.run.safetensors")


@pytest.mark.parametrize("name", SPECULATORS)
def test_speculators_makes_the_same_logits(speculators_drafts: Path, name: str) -> None:
    checkpoint, run = _read(speculators_drafts, name)
    assert checkpoint.layout == "speculators"
    config = SPECULATORS[name]
    stated = {flag: getattr(checkpoint.flags, flag) for flag in CHECKPOINT_FLAGS}
    assert stated == {flag: config.get(flag, False) for flag in CHECKPOINT_FLAGS}
    for ours, theirs in _differences(Draft.of(checkpoint, checkpoint.weights["embed_tokens.weight"]), run):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", [name for name in SPECULATORS if _on(name)])
def test_a_flag_lost_is_seen(speculators_drafts: Path, name: str) -> None:
    checkpoint, run = _read(speculators_drafts, name)
    draft = Draft.of(checkpoint, checkpoint.weights["embed_tokens.weight"])
    for flag in _on(name):
        other = _differences(draft.with_flags(checkpoint.flags.flipped(flag)), run)
        # What is fed back does not change the first step.
        ours, theirs = other[1 if flag == "norm_output" else 0]
        assert not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2), flag


@pytest.mark.parametrize("name", SPECFORGE)
def test_specforge_makes_the_same_logits(specforge_drafts: Path, name: str) -> None:
    checkpoint, run = _read(specforge_drafts, name)
    assert checkpoint.layout == "sglang"
    # Its norm_output means another thing than the servers': whether the lm_head reads a normed state.
    flags = checkpoint.flags
    own = type(flags)(
        fc_norm=flags.fc_norm, head_norm=SPECFORGE[name]["norm_output"], rope=flags.rope, window=flags.window
    )
    draft = Draft.of(checkpoint, checkpoint.weights["embed_tokens.weight"], flags=own)
    for ours, theirs in _differences(draft, run):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
