"""The declared consumers themselves: every version has one answer, and every fact names where it was read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.declared import at_version, declared, holds_at, names
from schemas.consumers.rules import formula
from schemas.consumers.versions import in_range, is_before, newest, oldest, release_of

NAMES = {
    "trainer": {
        "automodel", "deepspec", "eagle", "eagle-1", "modelopt", "modelopt-flagged", "modelopt-hf",
        "modelopt-streaming", "modelopt-vllm", "specforge", "speculators",
        "torchspec", "torchspec-hf", "torchspec-sgl", "torchspec-vllm",
    },
    "server": {"sglang", "vllm", "vllm-v1", "vllm-v2"},
}  # fmt: skip

releases = st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 30)).map(
    lambda numbers: ".".join(map(str, numbers))
)


def test_every_consumer_is_declared() -> None:
    assert set(names("trainer")) == NAMES["trainer"]
    assert set(names("server")) == NAMES["server"]
    assert set(names()) == NAMES["trainer"] | NAMES["server"]


@settings(deadline=None, max_examples=100)
@given(version=releases)
def test_a_version_is_in_at_most_one_range(version: str) -> None:
    for name in names():
        holding = [c for c in declared() if c.name == name and in_range(version, c.versions)]
        assert len(holding) <= 1
        found = at_version(name, version)
        known = bool(holding) and (bool(holding[0].versions) or bool(holding[0].one_of))
        assert (found.assumed is None) == known


@settings(deadline=None, max_examples=100)
@given(version=releases)
def test_a_model_has_at_most_one_rule_at_a_version(version: str) -> None:
    for consumer in declared():
        for model in {model for rule in consumer.ids for model in rule.models}:
            rules = [
                rule for rule in consumer.ids if model in rule.models and in_range(version, rule.versions)
            ]
            assert len(rules) <= 1, (consumer.name, model)


def test_every_member_and_every_engine_is_declared() -> None:
    for consumer in declared():
        assert set(consumer.one_of) <= set(names(consumer.kind))
        if consumer.engine is not None:
            name, _, version = consumer.engine.partition("==")
            assert at_version(name, version).assumed is None


def test_defaults_are_boundaries_of_a_deep_model() -> None:
    for consumer in declared():
        for text in (*(consumer.default or ()), *(consumer.default_ids or ())):
            assert 0 < formula(text, 61) < 61


def test_a_name_may_be_one_of_those_that_exist_then() -> None:
    assert holds_at("vllm-v1", "0.12.0")
    assert not holds_at("vllm-v2", "0.12.0")
    assert holds_at("vllm-v2", "9.0")


@pytest.mark.parametrize(
    "text", ["", "x", "1.x", "0.5.23 or so", "9" * 200, "\u0660.\u0665", "-1", "1." * 50]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="expected a version as 0"):
        release_of(text)


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.5.12.post1", (0, 5, 12)), ("v1", (1,)), ("0.18.0rc1", (0, 18, 0)), ("0.33.0+cu129", (0, 33, 0))],
)
def test_what_is_a_version(text: str, release: tuple[int, ...]) -> None:
    assert release_of(text) == release


def test_ranges() -> None:
    assert in_range("0.5", "==0.5.0")
    assert not is_before("0.5", ">=0.5.0")
    assert is_before("0.4.9", ">=0.5.0")
    assert (newest("<0.4"), oldest("<0.4")) == (None, None)
