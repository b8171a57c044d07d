"""Splits: vectors, shares, and rules that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import SplitRule
from schemas.split import rule_problems, split_ends, split_of, split_place

HOLDOUT = SplitRule(name="holdout", seed=0, fractions=(("train", 0.9), ("validation", 0.1)))


def test_the_place_of_a_conversation_stays() -> None:
    assert [split_place(HOLDOUT, text) for text in ("a", "b", "")] == [
        8719833580692136642,
        2248926852654426543,
        11577522479584737044,
    ]


def test_shares_are_decimal_and_exact() -> None:
    assert split_ends(HOLDOUT) == (2**64 * 9 // 10, 2**64)
    thirds = SplitRule(name="r", seed=1, fractions=(("a", 0.1), ("b", 0.2), ("c", 0.7)))
    assert split_ends(thirds)[-1] == 2**64


def test_about_as_many_fall_into_a_split_as_its_share_says() -> None:
    found = [split_of(HOLDOUT, f"conversation-{i}") for i in range(4000)]
    assert 0.08 < found.count("validation") / 4000 < 0.12
    assert None not in found


@given(seed=st.integers(-5, 5), conversation=st.text(max_size=20))
def test_what_the_shares_leave_is_in_no_split(seed: int, conversation: str) -> None:
    rule = SplitRule(name="few", seed=seed, fractions=(("few", 0.25),))
    assert split_of(rule, conversation) == ("few" if split_place(rule, conversation) < 2**62 else None)


@pytest.mark.parametrize(
    ("rules", "wheres"),
    [
        ([HOLDOUT], []),
        ([HOLDOUT.model_copy(update={"fractions": ()})], ["splits.holdout"]),
        (
            [SplitRule(name="x", seed=0, fractions=(("a", 0.0), ("a", 0.7), ("b", 0.6)))],
            ["splits.x.a", "splits.x.a", "splits.x"],
        ),
        (
            [HOLDOUT, HOLDOUT.model_copy(update={"name": "again"})],
            ["splits.again.train", "splits.again.validation"],
        ),
    ],
)
def test_a_rule_that_cannot_be_is_told_whole(rules: list[SplitRule], wheres: list[str]) -> None:
    assert [problem.where for problem in rule_problems(rules)] == wheres
