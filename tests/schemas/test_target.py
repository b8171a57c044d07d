"""A target is what its weights and tokenizer are; where the model lies is a name."""

import pytest

from schemas.target import Target
from tests.schemas.values import TARGET

CHANGES: dict[str, object] = {
    "model_type": "qwen3",
    "architecture": "Qwen3ForCausalLM",
    "n_layers": 5,
    "hidden_size": 9,
    "vocab_size": 1001,
    "weights": {"method": "sampled_safetensors", "sha256": "d" * 64},
    "quantisation": "fp8",
    "tokenizer_sha256": "d" * 64,
    "chat_template_sha256": None,
}
NAMES: dict[str, object] = {"model_id": "elsewhere/tiny", "revision": None}


def changed_target(change: dict[str, object]) -> Target:
    """Return the target with some fields changed, validated again."""
    return Target.model_validate(TARGET.model_dump() | change)


def test_every_field_is_a_name_or_content() -> None:
    assert {*CHANGES, *NAMES} == set(Target.model_fields)


@pytest.mark.parametrize("field", CHANGES)
def test_content_counts(field: str) -> None:
    assert changed_target({field: CHANGES[field]}).identity() != TARGET.identity()


@pytest.mark.parametrize("field", NAMES)
def test_a_name_does_not_count(field: str) -> None:
    assert changed_target({field: NAMES[field]}).identity() == TARGET.identity()


def test_the_same_digest_by_another_method_is_another_identity() -> None:
    other = {"method": "hub_file_hashes", "sha256": TARGET.weights.sha256}
    assert changed_target({"weights": other}).identity() != TARGET.identity()
