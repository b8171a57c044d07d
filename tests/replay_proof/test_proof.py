"""What is written for a wiring, and what counts as named, without a trainer."""

from typing import Any

import pytest
import torch

from tests.replay_proof.__main__ import judge
from tests.replay_proof.shape import faults_of
from tests.replay_proof.wirings import WIRINGS, Wiring

BY_NAME = {wiring.name: wiring for wiring in WIRINGS}
TENSORS = {
    name: torch.full((5, 2), float(number)) + torch.arange(5)[:, None] / 10
    for number, name in enumerate(("embed", "layer2", "layer15", "layer27", "final"))
}
SHAPE = {
    "right": 0.357,
    "off by one, deeper": 0.313,
    "off by one, shallower": 0.339,
    "first two swapped": 0.333,
    "reversed": 0.046,
    "rotated": 0.011,
    "one token stale": 0.15,
    "one token ahead": 0.335,
    "another sample's": 0.06,
    "zeros": 0.06,
}


def whole(tensor: torch.Tensor) -> list[float]:
    return [round(float(value), 1) for value in tensor[:, 0]]


def test_each_wiring_is_another_list() -> None:
    lists = {
        name: tuple(tuple(whole(slot)) for slot in wiring.slots(TENSORS, lambda rows: rows * 2))
        for name, wiring in BY_NAME.items()
    }
    assert len(set(lists.values())) == len(WIRINGS) >= 5
    assert lists["right"] == tuple(
        tuple(whole(TENSORS[n])) for n in ("layer2", "layer15", "layer27", "final")
    )
    assert lists["stale"][0] == (1.0, 1.0, 1.1, 1.2, 1.3)
    assert lists["stale"][3] == lists["right"][3]
    assert lists["normed-twice"][3] == tuple(2 * value for value in lists["right"][3])


def said(wiring: Wiring, *close: Wiring, words: str = "these weights were trained with it") -> Any:
    def candidate(one: Wiring) -> dict[str, Any]:
        target = {"final": "final", "final_normed": "final_normed, normed twice"}
        inputs, role = one.trained
        told = target.get(role.tensor, f"{role.tensor}, normed")
        return {"words": one.name, "fc": list(inputs.fc), "moved": inputs.moved, "target": told}

    row = {"accuracy": {"speculators": {"pooled": {"value": 0.2}}}}
    return {
        "trained_with": candidate(wiring),
        "too_close_to_call": [candidate(one) for one in close],
        "verdict": [words],
        "is_as_declared": any(one.name == "right" for one in (wiring, *close)),
        "stored": {"rows": [row]},
    }


@pytest.mark.parametrize("name", BY_NAME)
def test_only_what_was_trained_counts_as_named(name: str) -> None:
    wiring = BY_NAME[name]
    other = next(one for one in WIRINGS if one != wiring)
    assert judge(wiring, 0.2, said(wiring)).outcome == "named"
    assert judge(wiring, 0.2, said(wiring, other)).outcome == "too close to call, said so"
    assert judge(wiring, 0.2, said(other)).outcome == "WRONG"
    assert judge(wiring, 0.2, said(other, wiring)).outcome == "WRONG", "it has to be said in words"
    honest = judge(wiring, 0.2, said(other, wiring, words="too close to call at 99%"))
    assert honest.outcome == "too close to call, said so"


def test_a_rightly_trained_draft_that_is_accused_fails_the_proof() -> None:
    right, other = BY_NAME["right"], BY_NAME["swapped"]
    for data in (said(right), said(other, right, words="too close to call at 99%")):
        told = judge(right, 0.2, {**data, "is_as_declared": False})
        assert not told.is_right
        assert judge(right, 0.2, {**data, "is_as_declared": None}).is_right
    assert judge(other, 0.2, {**said(other), "is_as_declared": False}).is_right


@pytest.mark.parametrize(
    ("name", "score"),
    [("first two swapped", 0.36), ("one token stale", 0.335), ("reversed", 0.3), ("zeros", 0.2)],
    ids=str,
)
def test_a_table_of_another_shape_is_seen(name: str, score: float) -> None:
    assert faults_of(SHAPE) == []
    assert any(fault.startswith(f"{name}: expected less than") for fault in faults_of({**SHAPE, name: score}))
