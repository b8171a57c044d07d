"""The target whose tokens a draft proposes as often is its own, however easy another's tokens are."""

import numpy as np
import pytest

from datagen.replay.candidates import TRUE_TARGET, Inputs
from datagen.replay.leaning import Leaning, Spread, leaning
from schemas.wiring import TargetRole

MIDDLE = TargetRole(tensor="layer5", applies_norm=True)
EARLY = TargetRole(tensor="layer2", applies_norm=True)
INPUTS = Inputs(("layer2", "layer5"))
D = 50


def spreads(
    own: TargetRole, guessed: dict[TargetRole, float], n: int = 12, apart: float = 0.5, pairs: int = 200
) -> list[Spread]:
    """Return conversations in which a draft proposes tokens as often as `own` has them, nearly."""
    rng = np.random.default_rng(1)
    often = {role: rng.dirichlet(np.ones(D)) for role in guessed}
    often = {
        role: apart * share + (1 - apart) * often[own] if role != own else share
        for role, share in often.items()
    }

    def drawn(role: TargetRole) -> np.ndarray:
        return rng.multinomial(pairs, often[role]).astype(np.float32)

    return [
        Spread(
            drawn(own),
            {role: drawn(role) for role in guessed},
            {r: int(g * pairs) for r, g in guessed.items()},
        )
        for _ in range(n)
    ]


def test_the_own_target_is_the_nearest_and_easier_tokens_change_nothing() -> None:
    found = leaning(INPUTS, spreads(MIDDLE, {TRUE_TARGET: 0.2, MIDDLE: 0.1, EARLY: 0.19}))
    assert found.nearest == MIDDLE
    assert found.decide(TRUE_TARGET) == MIDDLE
    assert found.decide(MIDDLE) == MIDDLE
    assert found.rivals(MIDDLE) == ()
    assert found.alike[MIDDLE].value > 0.9 > found.alike[TRUE_TARGET].value


def test_what_is_expected_stands_where_nothing_else_is_nearer_beyond_doubt() -> None:
    found = leaning(INPUTS, spreads(MIDDLE, {TRUE_TARGET: 0.2, MIDDLE: 0.2}, apart=0.01))
    assert found.decide(TRUE_TARGET) == TRUE_TARGET
    assert found.decide(MIDDLE) == MIDDLE
    assert found.rivals(TRUE_TARGET) == (MIDDLE,)


def test_one_that_is_guessed_much_better_is_taken_where_the_tokens_do_not_tell() -> None:
    found = leaning(INPUTS, spreads(MIDDLE, {TRUE_TARGET: 0.05, MIDDLE: 0.5}, apart=0.01))
    assert found.decide(TRUE_TARGET) == MIDDLE
    assert found.rivals(MIDDLE) == ()


def test_one_conversation_tells_nothing() -> None:
    found = leaning(INPUTS, spreads(MIDDLE, {TRUE_TARGET: 0.2, MIDDLE: 0.2}, n=1))
    assert found.decide(TRUE_TARGET) == TRUE_TARGET
    assert found.rivals(TRUE_TARGET) == (MIDDLE,)


def test_the_share_in_common_is_of_all_pairs_and_1_where_both_are_the_same() -> None:
    same = np.array([3.0, 1.0, 0.0], np.float32)
    other = np.array([0.0, 1.0, 3.0], np.float32)
    both = [Spread(same, {TRUE_TARGET: same, MIDDLE: other}, {TRUE_TARGET: 1, MIDDLE: 0})] * 3
    found = leaning(INPUTS, both)
    assert isinstance(found, Leaning)
    assert found.alike[TRUE_TARGET].value == pytest.approx(1)
    assert found.alike[MIDDLE].value == pytest.approx(0.25)
    assert found.right == {TRUE_TARGET: 3, MIDDLE: 0}
