"""A draft's config.json read as its contract, in every layout, and nonsense in every place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.contract import DraftContract, Norms, contract_problems, differences, read_contract
from tests.schemas.contract.drafts import plain, speculators


def kinds(config: object) -> set[tuple[str, str]]:
    """Return where and of which kind the problems of a config are, notes left out."""
    return {(one.where, one.kind) for one in read_contract(config)[1] if one.severity == "error"}


def test_plain_layout() -> None:
    contract, problems = read_contract(plain(norm_before_residual=True, sliding_window=None))
    assert problems == ()
    assert contract.layout == "plain"
    assert contract.architecture == "LlamaForCausalLMEagle3"
    assert contract.norms == Norms(norm_before_residual=True)
    assert (contract.vocabulary.size, contract.vocabulary.draft_size) == (100, 40)
    assert (contract.shape.n_layers, contract.shape.hidden_size, contract.shape.n_slots) == (1, 8, 3)
    assert (contract.rope.theta, contract.rope.spelling) == (10000.0, "rope_theta")


def test_speculators_layout() -> None:
    contract, problems = read_contract(speculators("qwen3"))
    assert problems == ()
    assert (contract.layout, contract.model_type) == ("speculators", "qwen3")
    assert contract.norms == Norms(norm_before_residual=True, norm_before_fc=True, norm_output=True)
    assert (contract.rope.theta, contract.rope.spelling) == (10000.0, "rope_parameters")
    assert (contract.rope.scaling, contract.shape.n_slots) == ({}, 3)


def test_a_missing_norm_before_residual_is_false_in_a_plain_config_and_unsaid_in_speculators() -> None:
    said = speculators()
    del said["norm_before_residual"]
    assert read_contract(said)[0].norms.norm_before_residual is None
    assert read_contract(plain())[0].norms.norm_before_residual is False


def test_norm_before_fc_is_read_nested_first() -> None:
    contract, problems = read_contract(plain(eagle_config={"norm_before_fc": True}, norm_before_fc=False))
    assert contract.norms.norm_before_fc is True
    assert [(one.where, one.kind) for one in problems] == [("norm_before_fc", "conflict")]


@pytest.mark.parametrize(
    ("config", "where", "kind"),
    [
        (plain(norm_before_residual="false"), "norm_before_residual", "type"),
        (plain(norm_before_fc=True, fc_norm=True), "norm_before_fc", "conflict"),
        (plain(eagle_config={"norm_output": True}), "eagle_config.norm_output", "misplaced"),
        (plain(eagle_config={"eagle_config": {}}), "eagle_config.eagle_config", "nested_twice"),
        (plain(eagle_config=[1]), "eagle_config", "type"),
        (plain(hidden_size=-8), "hidden_size", "type"),
        (plain(vocab_size=10**30), "vocab_size", "type"),
        (plain(draft_vocab_size="40"), "draft_vocab_size", "type"),
        (plain(num_hidden_layers=True), "num_hidden_layers", "type"),
        (plain(rope_theta=float("nan")), "rope_theta", "type"),
        (plain(rope_parameters={"rope_theta": 5e5}), "rope_theta", "conflict"),
        (plain(architectures="LlamaForCausalLMEagle3"), "architectures", "type"),
        (plain(layer_types="sliding_attention"), "layer_types", "type"),
        (plain(rope_scaling={"factor": {"deep": 1}}), "rope_scaling.factor", "type"),
        (speculators(transformer_layer_config=[]), "transformer_layer_config", "type"),
        (
            speculators(transformer_layer_config={"draft_vocab_size": 41}),
            "draft_vocab_size",
            "conflict",
        ),
        (
            speculators(transformer_layer_config={"norm_output": False}),
            "norm_output",
            "conflict",
        ),
        ([], "draft config", "type"),
        (None, "draft config", "type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nonsense_is_named(config: object, where: str, kind: str) -> None:
    assert (where, kind) in kinds(config)


@pytest.mark.parametrize(
    ("more", "window"),
    [
        ({"sliding_window": 128, "layer_types": ["sliding_attention"]}, 128),
        ({"sliding_window": 128, "layer_types": ["full_attention"]}, None),
        ({"sliding_window": 128}, None),
        ({}, None),
    ],
    ids=["sliding", "full", "untyped", "none"],
)
def test_a_window_counts_where_a_layer_slides(more: dict[str, Any], window: int | None) -> None:
    assert read_contract(plain(**more))[0].sliding_window == window


def test_rope_scaling_is_the_same_in_both_spellings() -> None:
    old = read_contract(plain(rope_scaling={"type": "yarn", "factor": 4.0}))[0]
    new = read_contract(plain(rope_theta=None, rope_parameters={"rope_type": "yarn", "factor": 4}))[0]
    assert old.rope.scaling == new.rope.scaling == {"rope_type": "yarn", "factor": 4.0}
    assert (old.rope.spelling, new.rope.spelling) == ("rope_theta", "rope_parameters")


def test_a_contract_is_a_record() -> None:
    contract = read_contract(plain(rope_scaling={"rope_type": "llama3", "factor": 8, "low": [1, 2.5]}))[0]
    assert DraftContract.from_json(contract.to_json(), "card") == contract


KEYS = [
    *("architectures", "speculators_model_type", "transformer_layer_config", "eagle_config", "rope_scaling"),
    *("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_norm", "rope_parameters"),
    *("hidden_size", "vocab_size", "draft_vocab_size", "sliding_window", "layer_types", "rope_theta"),
    *("num_hidden_layers", "tie_word_embeddings", "embed_requires_grad", "eagle_aux_hidden_state_layer_ids"),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8)
NAMES = st.lists(
    st.sampled_from(["d2t", "fc.weight", "input_norm.weight", "x"]) | st.text(max_size=20), max_size=5
)


@settings(max_examples=150, deadline=None)
@given(
    config=CONFIGS | JSON,
    other=CONFIGS,
    names=NAMES,
    version=st.sampled_from(["0.4.5", "0.5.23", "0.33", "x"]),
)
def test_no_config_is_too_strange(config: object, other: object, names: list[str], version: str) -> None:
    contract, problems = read_contract(config)
    assert DraftContract.from_json(contract.to_json(), "card") == contract
    assert all(len(str(one)) < 2000 for one in problems)
    list(differences(contract, read_contract(other)[0]))
    for server in ("sglang", "vllm", "other"):
        list(contract_problems(contract, server, version, names, target_vocab_size=100))


def test_ten_megabytes_are_no_trouble() -> None:
    config = plain(
        norm_output="x" * 10_000_000,
        rope_scaling={f"key{n}": "y" * 100 for n in range(50_000)},
        eagle_config={
            "eagle_aux_hidden_state_layer_ids": list(range(500_000)),
            "norm_before_fc": [1] * 500_000,
        },
    )
    contract, problems = read_contract(config)
    assert list(differences(contract, contract)) == []
    # A step of quadratic cost would take hours here.
    assert all(len(str(one)) < 2000 for one in problems)
