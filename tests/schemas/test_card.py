"""The card: format v1 stays readable byte for byte, and a card is of one target and of a trainer."""

import json
from typing import Any

import pytest

from schemas.card import Card, DatasetVersion
from schemas.contract import DraftContract, Norms, Rope, Shape, Vocabulary
from schemas.errors import RecordError
from schemas.wiring import TargetRole, Wiring
from tests.schemas.values import FINGERPRINT, GOLDEN, TARGET

CARD = Card(
    target=TARGET,
    wiring=Wiring(
        consumer="speculators",
        kind="trainer",
        version="0.9.0",
        n_layers=4,
        fc=("embed", "layer2"),
        target=TargetRole(tensor="final", applies_norm=True),
        token_shift="consumer",
        mask_alignment="next",
        position_start=1,
    ),
    contract=DraftContract(
        architecture="LlamaForCausalLMEagle3",
        model_type="llama",
        norms=Norms(norm_before_residual=True, norm_before_fc=True),
        rope=Rope(theta=500000.0, scaling={"rope_type": "llama3", "factor": 8.0}, spelling="rope_parameters"),
        shape=Shape(n_layers=1, hidden_size=8, n_slots=2),
        vocabulary=Vocabulary(size=1000, draft_size=100),
        sliding_window=2048,
    ),
    dataset=DatasetVersion(dataset_id="1" * 32, name="demo", version=3, schema_fingerprint=FINGERPRINT),
)
FILE = GOLDEN / "card_v1.json"


def refused(content: dict[str, Any]) -> list[str]:
    with pytest.raises(RecordError) as caught:
        Card.from_json(json.dumps(content).encode(), "card.json")
    return [f"{problem.where}: {problem.message}" for problem in caught.value.problems]


def test_format_v1_is_written_byte_for_byte_as_published_and_stays_readable() -> None:
    assert CARD.to_json() == FILE.read_bytes()
    assert Card.from_json(FILE.read_bytes(), "card.json") == CARD


def test_a_card_needs_no_contract_and_no_dataset() -> None:
    bare = Card(target=TARGET, wiring=CARD.wiring)
    assert Card.from_json(bare.to_json(), "card.json") == bare


@pytest.mark.parametrize("fmt", ["strata.card.v2", "strata.part.v1", 1, None])
def test_another_format_is_refused_by_name(fmt: object) -> None:
    content = json.loads(FILE.read_bytes())
    assert any(text.startswith("format: ") for text in refused({**content, "format": fmt}))
    del content["format"]
    assert refused(content) == ["format: expected 'strata.card.v1', got no format"]


@pytest.mark.parametrize("field", ["target", "wiring"])
def test_a_card_without_target_or_wiring_is_refused(field: str) -> None:
    content = json.loads(FILE.read_bytes())
    del content[field]
    assert refused(content) == [f"{field}: expected this field, got none"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"n_layers": 5}, "wiring.n_layers: expected 4 as the target's, got 5"),
        ({"kind": "server"}, "wiring: expected a trainer's, with a target, got one without"),
        ({"target": None}, "wiring: expected a trainer's, with a target, got one without"),
        ({"fc": []}, "wiring.fc"),
        ({"fc": ["layer9"]}, "layer9: expected a layer between 1 and 3"),
        ({"fc": ["layer2", 3]}, "wiring.fc.1: expected a valid string"),
        ({"n_layers": "4"}, "wiring.n_layers: expected a valid integer"),
    ],
)
def test_a_wiring_of_another_target_or_of_no_trainer_is_refused(change: dict[str, Any], told: str) -> None:
    content = json.loads(FILE.read_bytes())
    content["wiring"] |= change
    assert any(told in text for text in refused(content)), refused(content)
