"""Who goes on to the next round: wirings, each once, however many norms are lost in how many ways."""

from datagen.replay.candidates import Change, Inputs
from datagen.replay.screening import leading, ranked
from schemas.wiring import TargetRole
from tests.datagen.replay.findings import found

REVERSED = ("layer27", "layer15", "layer2")
BESIDE = ("layer27", "layer15", "embed")


def test_the_lost_norms_of_one_wiring_do_not_crowd_out_the_next() -> None:
    """So a draft trained on the first was named as the second: only that one's variants were refined."""
    lost = [Inputs(BESIDE, changes=(Change(name),)) for name in ("norm_output", "head_norm", "rope")]
    shares = {Inputs(BESIDE): 0.30, **dict.fromkeys(lost, 0.31), Inputs(REVERSED): 0.29}
    measured = found(shares).measured
    assert Inputs(REVERSED) not in ranked(measured)[:3]
    assert leading(measured, 2) == (lost[0], Inputs(REVERSED))


def test_a_token_early_is_another_wiring() -> None:
    early, stale = Inputs(REVERSED, moved=1), Inputs(REVERSED, moved=-1)
    measured = found({early: 0.2, stale: 0.1, Inputs(REVERSED): 0.3}).measured
    assert leading(measured, 3) == (Inputs(REVERSED), early, stale)


def test_what_repeats_its_answer_does_not_lead() -> None:
    """A token ahead, a draft is fed the very state that it is to foretell, where that is an input too."""
    early, layer2 = Inputs(("layer2", "layer2"), moved=1), TargetRole(tensor="layer2", applies_norm=True)
    measured = {
        **found({early: 1.0}, role=layer2).measured,
        **found({early: 0.2, Inputs(("layer2", "layer3")): 0.4}).measured,
    }
    assert leading(measured, 2) == (Inputs(("layer2", "layer3")), early)
