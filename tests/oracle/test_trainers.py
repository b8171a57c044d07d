"""speculators' and SpecForge's own readers and shifts against the facts that the declarations rest on."""

import pytest
import torch

from tests.oracle import specforge_code, speculators_code
from tests.oracle.borrow import MissingCodeError

L = 61


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0"])
def test_v1_takes_the_list_as_it_comes(version: str) -> None:
    assert speculators_code.split_list(version, [0, 3, 31, 59]) == ([0, 3, 31], 59)
    assert speculators_code.split_list(version, [59, 3, 0]) == ([59, 3], 0)


@pytest.mark.parametrize("version", ["0.5.0", "0.9.0"])
def test_slots_are_taken_as_they_come(version: str) -> None:
    assert speculators_code.split_slots(version, [3, 31, 59, 61]) == ([3, 31, 59], 61)


@pytest.mark.parametrize(
    ("version", "norm"), [("0.3.0", False), ("0.4.0", True), ("0.5.0", True), ("0.9.0", True)]
)
def test_the_target_is_normed_since_0_4_0(version: str, norm: bool) -> None:
    assert speculators_code.applies_norm(version) is norm


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0", "0.5.0", "0.9.0"])
def test_speculators_drops_the_first_token_and_the_last_input_state(version: str) -> None:
    shifted = speculators_code.shift(version)
    assert shifted["input_ids"] == shifted["verifier_last_hidden_states"] == [1, 2, 3, 4, 5]
    assert shifted["loss_mask"] == shifted["position_ids"] == [1, 2, 3, 4, 5]
    assert shifted["hidden_states"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0"])
def test_v1_captures_after_a_layer_in_the_order_of_depth(version: str) -> None:
    assert speculators_code.captured_by_v1(version, [58, 2, 30, 60, 2], L) == [3, 31, 59, 61]


@pytest.mark.parametrize("version", ["0.9.0"])
def test_the_trainer_keeps_ids_that_are_possible(version: str) -> None:
    assert speculators_code.resolve_ids(version, None, L) == [2, 30, 58]
    assert speculators_code.resolve_ids(version, [59, 0, 61], L) == [59, 0, 61]
    for wrong in ([-1], [62], [3, 3], []):
        with pytest.raises(ValueError, match="target_layer_ids"):
            speculators_code.resolve_ids(version, wrong, L)


def test_v1_trainers_resolve_no_ids() -> None:
    with pytest.raises(MissingCodeError):
        speculators_code.resolve_ids("0.3.0", None, L)


def test_specforge_chooses_layers() -> None:
    nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}
    assert specforge_code.capture_ids("0.2.0", {}, L) == [1, 29, 57]
    assert specforge_code.capture_ids("0.2.0", nested, L) == [2, 30, 58]
    assert specforge_code.capture_ids("0.2.0", nested, L, [5, 5, 3]) == [5, 5, 3]
    for wrong in ([-1, 2, 3], [1, 2], ["1", 2, 3]):
        with pytest.raises(ValueError, match="exactly three"):
            specforge_code.capture_ids(
                "0.2.0", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": wrong}}, L
            )


def test_specforge_swaps_the_names_of_its_record() -> None:
    record = {
        "input_ids": torch.arange(4),
        "loss_mask": torch.ones(4, dtype=torch.long),
        "hidden_state": torch.full((1, 4, 1), 61.0),
        "aux_hidden_state": torch.full((1, 4, 3), 3.0),
    }
    sample = specforge_code.read("0.2.0", record, 10)
    assert set(sample["target"].flatten().tolist()) == {61.0}
    assert set(sample["hidden_state"].flatten().tolist()) == {3.0}
    assert sample["loss_mask"].tolist() == [[1, 1, 1, 0]]


def test_specforge_shifts_ids_and_target_but_no_mask() -> None:
    assert specforge_code.shift("0.2.0", 4) == {
        "ids": [2, 3, 4, 0],
        "target": [2, 3, 4, 0],
        "mask": [1, 2, 3, 4],
    }
