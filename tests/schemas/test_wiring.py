"""Two wirings side by side: every slot, the target, the shift and the mask are told by name."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.boundary import all_names
from schemas.wiring import (
    TargetRole,
    Wiring,
    difference_notes,
    shift_differences,
    slot_problems,
    target_differences,
    target_problems,
)


def wiring(**changes: Any) -> Wiring:
    fields: dict[str, Any] = {
        "consumer": "mine",
        "kind": "trainer",
        "version": "1.0",
        "n_layers": 8,
        "fc": ("layer2", "layer4", "layer5"),
        "target": TargetRole(tensor="final", applies_norm=True),
        "token_shift": "consumer",
        "mask_alignment": "next",
        "position_start": 1,
    }
    return Wiring.model_validate({**fields, **changes})


def target(tensor: str, applies_norm: bool) -> Wiring:
    return wiring(target=TargetRole(tensor=tensor, applies_norm=applies_norm))


def test_a_wiring_is_boundaries_and_names_its_tensors_once() -> None:
    mine = wiring(fc=("final_normed", "embed", "final"))
    assert mine.boundaries == (8, 0, 8)
    assert mine.tensors == ("final_normed", "embed", "final")
    assert (mine.title, wiring(version=None).title) == ("mine==1.0", "mine")


@pytest.mark.parametrize("name", ["layer8", "layer0", "layer02", "hidden", ""])
def test_a_tensor_that_the_target_does_not_have_is_no_wiring(name: str) -> None:
    with pytest.raises(ValidationError, match="expected"):
        wiring(fc=("layer2", name))
    with pytest.raises(ValidationError, match="expected"):
        target(name, applies_norm=True)


@pytest.mark.parametrize("name", all_names(8))
@pytest.mark.parametrize("applies_norm", [True, False])
def test_only_one_tensor_is_right_for_a_target(name: str, applies_norm: bool) -> None:
    """`final` with a norm and `final_normed` without: the other 18 ways are each refused by name."""
    problems = list(target_problems(target(name, applies_norm)))
    if name == ("final" if applies_norm else "final_normed"):
        assert problems == []
        return
    (problem,) = problems
    assert (problem.where, problem.severity) == ("target", "error")
    assert f"got {name}: " in problem.message
    assert problem.repair is not None


def test_a_server_has_no_target_to_be_wrong() -> None:
    assert list(target_problems(wiring(kind="server", target=None))) == []


names = st.sampled_from(all_names(8))


@settings(deadline=None, max_examples=100)
@given(st.lists(names, min_size=1, max_size=5), st.lists(names, min_size=1, max_size=5))
def test_inputs_agree_only_when_every_slot_does(expected: list[str], got: list[str]) -> None:
    problems = list(slot_problems(expected, got, "the one", "the other", "do it"))
    if expected == got:
        assert problems == []
        return
    whole, *slots = problems
    assert whole.where == "fc"
    assert whole.kind == (
        "slots" if len(expected) != len(got) else "order" if sorted(expected) == sorted(got) else "input"
    )
    told = {problem.where: problem for problem in slots}
    for slot in range(max(len(expected), len(got))):
        want = expected[slot] if slot < len(expected) else "no such slot"
        have = got[slot] if slot < len(got) else "none"
        if want == have:
            assert f"fc[{slot}]" not in told
        else:
            message = f"expected {want} (the one), got {have} (the other)"
            assert (told[f"fc[{slot}]"].kind, told[f"fc[{slot}]"].message) == ("slot", message)


@pytest.mark.parametrize(
    ("want", "have", "severity"),
    [
        (("final", True), ("final", True), None),
        (("final", True), ("final_normed", False), "note"),
        (("final_normed", False), ("final", True), "note"),
        (("final", True), ("final", False), "error"),
        (("final", True), ("final_normed", True), "error"),
        (("final_normed", False), ("final_normed", True), "error"),
        (("final", True), ("layer7", True), "error"),
        (("layer7", True), ("layer7", False), "error"),
    ],
)
def test_targets_agree_when_their_logits_do(
    want: tuple[str, bool], have: tuple[str, bool], severity: str | None
) -> None:
    problems = list(target_differences(target(*want), target(*have), "the one", "the other"))
    assert [problem.severity for problem in problems] == ([severity] if severity else [])
    for problem in problems:
        assert problem.where == "target"
        assert want[0] in problem.message
        assert have[0] in problem.message
        assert (problem.repair is None) is (severity == "note")


def test_a_trainer_without_a_target_is_refused_where_one_is_meant() -> None:
    (problem,) = target_differences(wiring(), wiring(target=None), "a", "b")
    assert (problem.severity, problem.message) == (
        "error",
        "expected final, which is normed then (a), got no target (b)",
    )


@pytest.mark.parametrize(
    ("want", "have", "told"),
    [
        ("consumer", "consumer", None),
        ("producer", "producer", None),
        ("producer", None, None),
        ("producer", "consumer", "moved twice"),
        ("consumer", "producer", "never moved"),
    ],
)
def test_tokens_are_moved_once(want: str, have: str | None, told: str | None) -> None:
    problems = list(shift_differences(wiring(token_shift=want), wiring(token_shift=have), "a", "b"))
    assert len(problems) == (told is not None)
    for problem in problems:
        assert (problem.where, problem.severity) == ("token_shift", "error")
        assert told is not None
        assert told in problem.message


def test_where_mask_and_positions_start_is_a_note() -> None:
    assert list(difference_notes(wiring(), wiring())) == []
    assert list(difference_notes(wiring(), wiring(mask_alignment=None, position_start=None))) == []
    mask, start = difference_notes(wiring(), wiring(mask_alignment="same", position_start=0))
    assert (mask.severity, start.severity) == ("note", "note")
    assert mask.message.endswith("begin and end one token later")
    assert "nothing" in start.message
    (mask,) = difference_notes(wiring(mask_alignment="same"), wiring())
    assert mask.message.endswith("begin and end one token earlier")
