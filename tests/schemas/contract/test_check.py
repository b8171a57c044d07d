"""Contracts against servers: each row is something that a released version does, read in its files."""

from typing import Any

import pytest

from schemas.contract import DraftContract, Norms, Rope, contract_problems, differences, read_contract
from schemas.contract.servers import known_servers, meanings
from schemas.problem import Problem
from tests.schemas.contract.drafts import plain, speculators, weights

Weights = dict[str, tuple[int, ...]]


def found(
    config: dict[str, Any], server: str, version: str | None, tensors: Any = None, **more: int | None
) -> list[Problem]:
    """Return the errors of a config at a server."""
    contract, wrong = read_contract(config)
    assert not [one for one in wrong if one.severity == "error"]
    problems = contract_problems(contract, server, version, tensors, **{"target_vocab_size": 100, **more})
    return [one for one in problems if one.severity == "error"]


def kinds(*args: Any, **more: Any) -> list[tuple[str, str]]:
    """Return where and of which kind the errors are."""
    return [(one.where, one.kind) for one in found(*args, **more)]


@pytest.mark.parametrize(
    ("flag", "server", "last_without", "first_with"),
    [
        ("norm_before_fc", "sglang", "0.5.16", "0.5.17"),
        ("fc_norm", "sglang", "0.5.11", "0.5.12"),
        ("norm_output", "sglang", "0.5.11", "0.5.12"),
        ("norm_before_residual", "sglang", "0.5.23", None),
        ("norm_before_residual", "vllm", "0.10.0", "0.10.1"),
        ("norm_before_fc", "vllm", "0.17.0", "0.18.0"),
        ("fc_norm", "vllm", "0.20.0", "0.22.0"),
        ("norm_output", "vllm", "0.20.0", "0.22.0"),
    ],
)
def test_since_when_a_flag_is_read(flag: str, server: str, last_without: str, first_with: str | None) -> None:
    config = plain(**{flag: True})
    assert (flag, "flag_unread") in kinds(config, server, last_without)
    if first_with is not None:
        assert kinds(config, server, first_with) == []


@pytest.mark.parametrize(
    ("flag", "last_without", "first_with"),
    [
        ("norm_before_fc", "0.18.0", "0.19.0"),
        ("fc_norm", "0.24.0", "0.25.0"),
        ("norm_output", "0.24.0", "0.25.0"),
    ],
)
def test_vllm_passes_flags_of_speculators_configs_on_later(
    flag: str, last_without: str, first_with: str
) -> None:
    off = {"norm_before_fc": False, "norm_output": False, "fc_norm": False}
    config = {**speculators(), **off, flag: True}
    assert kinds(config, "vllm", last_without) == [(flag, "flag_unread")]
    assert kinds(config, "vllm", first_with) == []


def test_both_norms_lost_tells_the_measured_loss() -> None:
    config = plain(norm_before_residual=True, norm_before_fc=True)
    problems = found(config, "sglang", "0.5.16", weights("input_norm.weight"))
    assert [one.where for one in problems] == ["norm_before_residual", "norm_before_fc"]
    assert all("0.357" in one.message and "0.153" in one.message for one in problems)
    assert "input_norm.weight is skipped without a word" in problems[1].message
    assert problems[1].repair == "serve with SGLang >=0.5.17, or train with norm_before_fc false"


def test_a_speculators_config_is_none_for_sglang() -> None:
    problems = found(speculators(), "sglang", "0.5.23", weights("input_norm.weight"))
    assert [(one.where, one.kind) for one in problems] == [
        ("config.json", "layout"),
        ("norm_before_residual", "flag_unread"),
    ]
    assert kinds(speculators(), "vllm", "0.33.0", weights("input_norm.weight")) == []


def test_an_unsaid_norm_before_residual_is_taken_for_true_by_vllm() -> None:
    config = speculators()
    del config["norm_before_residual"]
    (problem,) = found(config, "vllm", "0.33.0")
    assert problem.kind == "flag_unsaid"
    assert "vLLM 0.33.0 takes true, speculators' own loader false" in problem.message


QWEN = ("layers.0.self_attn.q_norm.weight", "layers.0.self_attn.k_norm.weight")


@pytest.mark.parametrize(
    ("config", "server", "version", "tensors", "where", "kind", "says"),
    [
        (plain(), "sglang", "0.5.11", weights(), "weights", "weight_unknown", "without a word"),
        (plain(), "sglang", "0.4.8", weights(), "weights", "weight_unknown", "warning"),
        (plain(), "sglang", "0.5.23", weights(*QWEN), "weights", "weight_unknown", "q_norm.weight"),
        (plain(), "vllm", "0.33.0", weights(*QWEN), "weights", "weight_unknown", "refuses"),
        (plain(), "vllm", "0.33.0", weights("verifier_norm.weight"), "weights", "weight_unknown", "refuses"),
        (
            plain(),
            "sglang",
            "0.5.23",
            weights("input_norm.weight"),
            "norm_before_fc",
            "weight_without_flag",
            "word",
        ),
        (
            plain(),
            "vllm",
            "0.33.0",
            weights("input_norm.weight"),
            "norm_before_fc",
            "weight_without_flag",
            "word",
        ),
        (
            plain(),
            "vllm",
            "0.17.0",
            weights("input_norm.weight"),
            "norm_before_fc",
            "weight_without_flag",
            "refused",
        ),
        (plain(), "vllm", "0.33.0", weights("fc_norm.0.weight"), "fc_norm", "weight_without_flag", "refused"),
        (
            plain(fc_norm=True),
            "vllm",
            "0.33.0",
            weights("fc_norm.0.weight"),
            "fc_norm",
            "weight_missing",
            "3 of",
        ),
        (
            plain(norm_before_fc=True),
            "vllm",
            "0.33.0",
            weights(),
            "norm_before_fc",
            "weight_missing",
            "input_norm",
        ),
        (
            plain(),
            "vllm",
            "0.33.0",
            weights(without=("fc.weight",)),
            "weights",
            "weight_missing",
            "fc.weight",
        ),
        (
            plain(),
            "sglang",
            "0.5.23",
            weights(without=("lm_head.weight",)),
            "weights",
            "weight_missing",
            "lm_head",
        ),
        (plain(), "sglang", "0.5.23", weights(without=("d2t",)), "d2t", "vocabulary", "without a word"),
        (
            plain(draft_vocab_size=200),
            "vllm",
            "0.33.0",
            None,
            "draft_vocab_size",
            "vocabulary",
            "at most 100",
        ),
        (plain(vocab_size=99), "vllm", "0.33.0", None, "vocab_size", "vocabulary", "expected 100"),
        (plain(draft_vocab_size=41), "vllm", "0.33.0", weights(), "d2t", "shape", "[41]"),
        (plain(hidden_size=16), "vllm", "0.33.0", weights(), "fc.weight", "shape", "[16, 48]"),
        (plain(num_hidden_layers=2), "sglang", "0.5.11", None, "num_hidden_layers", "layers", "1 layer"),
        (plain(tie_word_embeddings=True), "sglang", "0.5.23", weights(), "lm_head.weight", "tie", "word"),
        (plain(tie_word_embeddings=True), "sglang", "0.5.23", None, "tie_word_embeddings", "tie", "40 rows"),
        (plain(embed_requires_grad=True), "sglang", "0.5.23", None, "embed_tokens", "embedding", "target's"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_server_does(
    config: dict[str, Any],
    server: str,
    version: str,
    tensors: Weights | None,
    where: str,
    kind: str,
    says: str,
) -> None:
    problems = [
        one for one in found(config, server, version, tensors) if (one.where, one.kind) == (where, kind)
    ]
    assert len(problems) == 1
    assert says in problems[0].message
    assert problems[0].repair


@pytest.mark.parametrize(
    ("config", "server", "version", "tensors"),
    [
        (plain(), "sglang", "0.5.23", weights()),
        (plain(), "sglang", "0.5.11", weights(layer="midlayer")),
        (plain(), "sglang", "0.5.23", weights(layer="model.layers.0")),
        (plain(), "vllm", "0.33.0", weights(layer="midlayer")),
        (plain(norm_before_fc=True), "sglang", "0.5.23", weights("input_norm.weight")),
        (speculators("qwen3"), "vllm", "0.33.0", weights(*QWEN, "input_norm.weight")),
        (plain(tie_word_embeddings=True), "vllm", "0.33.0", weights()),
        (plain(), "vllm", "0.33.0", weights("layers.0.mlp.up_proj.weight_scale")),
    ],
    ids=["sglang", "midlayer", "prefixed", "vllm", "norm", "qwen3", "tied_vllm", "quantized"],
)
def test_what_is_right_passes(config: dict[str, Any], server: str, version: str, tensors: Weights) -> None:
    assert found(config, server, version, tensors) == []


def test_names_alone_are_judged_without_shapes() -> None:
    assert found(plain(draft_vocab_size=41), "vllm", "0.33.0", list(weights())) == []


def test_a_map_of_the_whole_vocabulary_is_refused_by_newer_vllm() -> None:
    config, tensors = plain(draft_vocab_size=100), {**weights(), "d2t": (100,), "lm_head.weight": (100, 8)}
    assert kinds(config, "vllm", "0.29.0", tensors) == []
    assert kinds(config, "vllm", "0.30.0", tensors) == [("d2t", "vocabulary")]


def test_rope_parameters_alone_are_not_read_by_older_servers() -> None:
    config = plain(rope_theta=None, rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    assert kinds(config, "sglang", "0.5.9") == [("rope_parameters", "rope")]
    assert kinds(config, "vllm", "0.11.1") == [("rope_parameters", "rope")]
    assert kinds(config, "sglang", "0.5.10") == kinds(config, "vllm", "0.12.0") == []


def test_a_window_comes_from_the_flags_in_sglang_and_from_the_config_in_vllm() -> None:
    config = plain(sliding_window=128, layer_types=["sliding_attention"])
    (problem,) = found(config, "sglang", "0.5.23")
    assert problem.repair == "start the server with --speculative-draft-window-size 128"
    assert found(config, "sglang", "0.5.23", window=128) == []
    assert [one.kind for one in found(config, "sglang", "0.5.23", window=64)] == ["window"]
    assert [one.kind for one in found(plain(), "sglang", "0.5.23", window=64)] == ["window"]
    assert found(config, "vllm", "0.33.0") == []


@pytest.mark.parametrize(
    ("server", "version", "kind", "severity"),
    [
        ("sglang", None, "assumed", "note"),
        ("sglang", "0.9", "assumed", "note"),
        ("vllm", "0.40", "assumed", "note"),
        ("sglang", "0.4.4", "version", "error"),
        ("vllm", "new", "version", "error"),
        ("tgi", "1.0", "unknown_server", "note"),
    ],
)
def test_what_is_not_known_is_said(server: str, version: str | None, kind: str, severity: str) -> None:
    problems = list(contract_problems(read_contract(plain())[0], server, version))
    assert [(one.kind, one.severity) for one in problems] == [(kind, severity)]


def test_an_unknown_class_is_said() -> None:
    problems = contract_problems(read_contract(plain(architectures=["Mine"]))[0], "sglang", "0.5.23")
    assert [one.kind for one in problems] == ["assumed"]


def test_every_flag_has_a_meaning() -> None:
    assert {one.name for one in meanings()} == set(Norms.model_fields)
    assert {one.name for one in known_servers()} == {"sglang", "vllm"}


@pytest.mark.parametrize("server", ["sglang", "vllm"])
@pytest.mark.parametrize("flag", list(Norms.model_fields))
def test_every_version_can_be_asked(server: str, flag: str) -> None:
    first, last = {"sglang": ("0.4.5", "0.5.23"), "vllm": ("0.8.5", "0.33.0")}[server]
    for version in (first, "0.5.9" if server == "sglang" else "0.20.0", last):
        for config in (plain(**{flag: True}), {**speculators(), flag: True}):
            contract = read_contract(config)[0]
            assert isinstance(list(contract_problems(contract, server, version, weights())), list)


def test_contracts_differ_in_what_they_say() -> None:
    trained = read_contract(plain(norm_before_fc=True, rope_theta=5e5))[0]
    served = read_contract(plain(rope_theta=1e4, tie_word_embeddings=True))[0]
    problems = list(differences(trained, served))
    assert [one.where for one in problems] == ["norm_before_fc", "rope_theta", "tie_word_embeddings"]
    assert problems[0].message.startswith("trained with true, served with false: one norm over")
    assert list(differences(trained, trained)) == []


def test_what_one_contract_does_not_say_is_a_note() -> None:
    trained = DraftContract(rope=Rope(theta=1e4), norms=Norms(norm_before_residual=None))
    problems = list(differences(trained, DraftContract(norms=Norms(norm_before_residual=True))))
    assert {(one.where, one.severity) for one in problems} == {
        ("norm_before_residual", "note"),
        ("rope_theta", "note"),
    }


def test_scalings_of_rope_are_compared() -> None:
    scaled = read_contract(plain(rope_scaling={"rope_type": "yarn", "factor": 4}))[0]
    bare = read_contract(plain())[0]
    for trained, served in ((scaled, bare), (bare, scaled)):
        assert [(one.where, one.severity) for one in differences(trained, served)] == [
            ("rope_scaling", "error")
        ]


def test_a_draft_of_the_whole_vocabulary_needs_no_map() -> None:
    tensors = {**weights(without=("d2t", "t2d")), "lm_head.weight": (100, 8)}
    for server, version in (("sglang", "0.5.23"), ("vllm", "0.33.0")):
        assert found(plain(draft_vocab_size=100), server, version, tensors) == []
