"""Candidates: every one that was promised, each once, and what is left out is said."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.replay.candidates import (
    MAX_CHOICES,
    TRUE_TARGET,
    Change,
    Inputs,
    floors,
    neighbours,
    off_by,
    ordered_choices,
    target_words,
    targets,
    variants,
)
from schemas.boundary import all_names
from schemas.wiring import TargetRole

STORED = ("embed", "layer2", "layer15", "layer27", "final", "final_normed")


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 6), n_slots=st.integers(1, 4))
def test_ordered_choices_are_all_there_and_distinct(count: int, n_slots: int) -> None:
    names = STORED[:count]
    inputs, left_out = ordered_choices(names, n_slots)
    got = [one.fc for one in inputs]
    assert len(set(got)) == len(got) <= MAX_CHOICES
    assert left_out is None
    assert set(got) == set(product(names, repeat=n_slots))
    assert all(one.is_plain for one in inputs)


@pytest.mark.parametrize(("count", "expected"), [(9, 504), (32, MAX_CHOICES)])
def test_what_is_left_out_of_too_many_choices_is_said(count: int, expected: int) -> None:
    names = all_names(30)[:count]
    inputs, left_out = ordered_choices(names, 3, limit=504 if count == 9 else MAX_CHOICES)
    assert len(inputs) == expected
    assert left_out is not None
    assert f"of {count**3:,} ordered choices" in left_out


def test_the_wirings_of_the_known_accidents_are_among_them() -> None:
    right = ("layer2", "layer15", "layer27")
    inputs = {one.fc for one in ordered_choices(STORED, 3).inputs}
    swapped, turned, normed = (
        ("layer15", "layer2", "layer27"),
        ("layer27", "layer15", "layer2"),
        ("layer2", "layer15", "final_normed"),
    )
    assert {right, swapped, turned, normed, ("layer27",) * 3, ("embed", "layer2", "layer15")} <= inputs


def test_variants_are_a_token_early_or_late_and_each_change_and_lost_norms_together() -> None:
    base = Inputs(("layer2", "layer15", "layer27"))
    residual, before_fc = Change("norm_before_residual"), Change("norm_before_fc")
    found = variants(base, (residual, before_fc, Change("fc_norm", on=True), Change("rope")))
    assert base not in found
    assert len(set(found)) == len(found)
    assert {one.moved for one in found} == {-1, 0, 1}
    assert {one.changes for one in found if one.changes} == {
        (residual,),
        (before_fc,),
        (Change("fc_norm", on=True),),
        (Change("rope"),),
        (residual, before_fc),
    }


def test_neighbours_are_every_boundary_in_each_slot_and_all_one_up_or_down() -> None:
    base = Inputs(("layer2", "layer15", "layer27"))
    found = neighbours(base, 30)
    assert len(found) == len(set(found)) == 3 * (len(all_names(30)) - 1) + 2
    assert {Inputs(("layer1", "layer14", "layer26")), Inputs(("layer3", "layer16", "layer28"))} <= set(found)
    assert Inputs(("layer2", "layer15", "final")) in found
    assert off_by(("embed",), -1, 30) is None
    assert off_by(("final",), 1, 30) is None


def test_targets_are_each_tensor_normed_and_not_and_the_true_one_once() -> None:
    found = targets(STORED)
    assert found[0] == TRUE_TARGET
    assert len(set(found)) == len(found) == 2 * len(STORED) - 1
    assert TargetRole(tensor="final_normed", applies_norm=False) not in found
    assert TargetRole(tensor="final_normed", applies_norm=True) in found
    assert len({target_words(role) for role in found}) == len(found)


def test_words_tell_candidates_apart() -> None:
    base = Inputs(("layer2", "layer15"))
    every = (base, *variants(base, (Change("norm_before_fc"), Change("norm_output", on=True))), *floors(base))
    assert len({str(one) for one in every}) == len(every)
