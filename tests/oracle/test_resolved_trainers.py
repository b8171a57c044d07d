"""Our resolvers of trainers against the trainers' own code, over generated ids, lists and configs."""

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.boundary import FINAL, FINAL_NORMED, name_of
from schemas.consumers.resolution import Resolution
from schemas.consumers.resolve import Shape, resolve_trainer
from schemas.wiring import Wiring, target_problems
from tests.oracle import specforge_code, speculators_code
from tests.oracle.borrow import tree
from tests.oracle.comparison import ids_of
from tests.oracle.wheels import RELEASES, source

SPECULATORS = RELEASES["speculators"]
LISTS = [version for version in SPECULATORS if version in ("0.3.0", "0.4.0")]
SPECFORGE = RELEASES["specforge"]
DEPTHS = st.integers(6, 64)


@pytest.mark.parametrize("version", SPECULATORS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_list_is_split_as_speculators_splits_it(version: str, data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    boundaries = data.draw(st.lists(st.integers(0, n_layers), min_size=2, max_size=6))
    split = speculators_code.split_list if version in LISTS else speculators_code.split_slots
    fc, target = split(version, boundaries)
    ours = _wiring(resolve_trainer("speculators", version, _shape(n_layers), _names(boundaries, n_layers)))
    assert list(ours.fc) == _names(fc, n_layers)
    assert ours.target is not None
    assert ours.target.tensor == name_of(target, n_layers)


@pytest.mark.parametrize("version", SPECULATORS)
def test_speculators_norms_and_shifts_as_its_wiring_says(version: str) -> None:
    wiring = _wiring(resolve_trainer("speculators", version, _shape(61)))
    assert wiring.target is not None
    assert wiring.target.applies_norm is speculators_code.applies_norm(version)
    # What its own generator stores there is never normed: 0.3 learns from that, and is told so.
    assert wiring.target.tensor == FINAL
    assert bool(list(target_problems(wiring))) is not wiring.target.applies_norm
    shifted = speculators_code.shift(version)
    first = shifted["hidden_states"][0]
    assert shifted["verifier_last_hidden_states"][0] == first + 1
    assert wiring.token_shift == {0: "producer", 1: "consumer"}[shifted["input_ids"][0] - first]
    assert wiring.mask_alignment == {0: "same", 1: "next"}[shifted["loss_mask"][0] - first]
    assert wiring.position_start == shifted["position_ids"][0]


@pytest.mark.parametrize("version", LISTS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_v1_ids_are_what_its_worker_captures(version: str, data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    ids = data.draw(ids_of(n_layers))
    captured = speculators_code.captured_by_v1(version, ids, n_layers)
    ours = resolve_trainer("speculators", version, _shape(n_layers), ids=ids)
    if len(captured) < max(2, len(set(ids))):  # an id that no layer has is passed over there in silence
        assert ours.wiring is None
        return
    wiring = _wiring(ours)
    assert wiring.target is not None
    assert [*wiring.fc, wiring.target.tensor] == _names(captured, n_layers)


@pytest.mark.parametrize("version", SPECFORGE)
def test_specforge_shifts_and_norms_as_its_wiring_says(version: str) -> None:
    wiring = _wiring(resolve_trainer("specforge", version, _shape(61), engine="sglang==0.5.16"))
    shifted = specforge_code.shift(version, 4)
    first = 1  # the hidden states of the sample are not moved, and start with this number
    assert wiring.token_shift == {0: "producer", 1: "consumer"}[shifted["ids"][0] - first]
    assert shifted["target"][0] == first + 1
    assert wiring.mask_alignment == {0: "same", 1: "next"}[shifted["mask"][0] - first]
    assert wiring.target is not None
    head = source("specforge", version) / "modeling" / "target" / "target_head.py"
    calls = [ast.unparse(node.func) for node in ast.walk(tree(head)) if isinstance(node, ast.Call)]
    assert wiring.target.applies_norm is any("norm" in call for call in calls)
    assert wiring.target.tensor == FINAL_NORMED


def _wiring(resolution: Resolution) -> Wiring:
    assert resolution.wiring is not None, [str(problem) for problem in resolution.problems]
    return resolution.wiring


def _names(boundaries: Any, n_layers: int) -> list[str]:
    return [name_of(boundary, n_layers) for boundary in boundaries]


def _shape(n_layers: int) -> Shape:
    return Shape(model_type="llama", n_layers=n_layers)
