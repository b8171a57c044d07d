"""A state goes on only where it means the same samples, and says every difference."""

import json
from typing import Any

import pytest

from schemas.wiring import TargetRole, Wiring
from service.client.errors import StateError
from service.client.plan import Budget, Plan
from service.client.resume import Selection, identity_of, read_state, state_of
from service.client.turns import Position
from tests.service.client.test_plan import table_of

WIRING = Wiring(
    consumer="mine",
    kind="trainer",
    n_layers=4,
    fc=("layer1", "layer2"),
    target=TargetRole(tensor="final", applies_norm=True),
)


def identity(seed: int = 7, lengths: tuple[int, ...] = (3, 4, 5), **given: Any) -> dict[str, Any]:
    plan = Plan(table_of(list(lengths)), seed, Budget(tokens=given.pop("tokens", 10)))
    whole = {
        "dataset": "demo",
        "number": 3,
        "fingerprint": "f" * 64,
        "selection": Selection(),
        "wiring": WIRING,
    }
    return identity_of(**{**whole, **given}, plan=plan)


def test_a_state_is_one_position_that_json_keeps() -> None:
    state = json.loads(json.dumps(state_of(identity(), Position(2, 9))))
    assert (state["epoch"], state["position"]) == (2, 9)
    assert read_state(state, identity()) == Position(2, 9)


@pytest.mark.parametrize(
    ("other", "where"),
    [
        ({"dataset": "other"}, {"dataset"}),
        ({"number": 4}, {"version"}),
        ({"fingerprint": "e" * 64}, {"schema"}),
        ({"seed": 8}, {"seed"}),
        ({"tokens": 12}, {"tokens_per_batch"}),
        ({"selection": Selection("train", 5, 1)}, {"split", "min_tokens", "min_trained"}),
        ({"lengths": (3, 4, 6)}, {"samples"}),
        ({"wiring": WIRING.model_copy(update={"fc": ("layer2", "layer1")})}, {"fc"}),
        ({"number": 4, "seed": 8, "lengths": (1, 2)}, {"version", "seed", "samples"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_every_difference_is_refused_by_name(other: dict[str, Any], where: set[str]) -> None:
    state = state_of(identity(), Position(1, 2))
    with pytest.raises(StateError) as refused:
        read_state(state, identity(**other))
    assert {problem.where for problem in refused.value.problems} == {f"state.{name}" for name in where}


@pytest.mark.parametrize(
    "state",
    [None, {}, [], {"format": "strata.stream.v0"}, "state"],
    ids=["none", "empty", "list", "another format", "text"],
)
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises(StateError, match="expected a state of the format"):
        read_state(state, identity())


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None])
def test_a_position_is_a_whole_number(value: object) -> None:
    state = {**state_of(identity(), Position()), "position": value}
    with pytest.raises(StateError, match=r"state\.position: expected a whole number from 0 on"):
        read_state(state, identity())


def test_a_state_without_a_field_is_refused_by_that_field() -> None:
    state = state_of(identity(), Position())
    del state["seed"]
    with pytest.raises(StateError, match=r"state\.seed"):
        read_state(state, identity())
