"""What cannot be told is said to be so, and the likeliest of it is named: no norm flag out of chance."""

from dataclasses import replace

import numpy as np

from datagen.replay.candidates import TRUE_TARGET, Candidate, Change, Inputs
from datagen.replay.declaring import Declaration
from datagen.replay.leaning import Leaning, Spread, leaning
from datagen.replay.screening import Findings
from datagen.replay.verdict import Verdict, judge
from schemas.wiring import TargetRole
from tests.datagen.replay.findings import found

FC = ("layer2", "layer3", "layer5")
SWAPPED = ("layer3", "layer2", "layer5")
LOST = (Change("norm_before_residual"), Change("head_norm"))
FLOOR = Inputs(FC, source="zeros")


def judged(findings: Findings, trained: Inputs | None) -> Verdict:
    declared = None if trained is None else Candidate(trained, TRUE_TARGET)
    declaration = Declaration(declared, "the draft's config", None, "", (), ())
    return judge(declaration, findings, None, "there is no audit set", 6)


def told(verdict: Verdict) -> str:
    return "\n".join(verdict.sentences)


def weakly_trained(fc: tuple[str, ...]) -> Findings:
    """A draft whose lost norms score a little more than what it was trained with, by chance."""
    shares = {Inputs(fc, changes=LOST): 0.14, Inputs(fc): 0.13, Inputs(fc, moved=-1): 0.07, FLOOR: 0.05}
    findings = found(shares, 40)
    lucky = findings.measured[findings.best].learned.right
    lucky += np.tile([3, -4], 20)
    return findings


def test_a_norm_flag_within_chance_is_not_named_where_the_config_is_declared() -> None:
    verdict = judged(weakly_trained(FC), Inputs(FC))
    assert verdict.best == Candidate(Inputs(FC), TRUE_TARGET)
    assert verdict.is_as_declared
    assert "these weights were trained with layer2, layer3, layer5: they score" in told(verdict)
    assert "its norms, RoPE and window cannot be told at 99% over 40 conversations" in told(verdict)
    assert "norm_before_residual lost, head_norm lost (ahead by 0." in told(verdict)
    assert "taken as the draft's config says" in told(verdict)


def test_nor_where_the_tensors_are_other_than_declared() -> None:
    """The config's tensors are wrong; its norm flags are still the likeliest."""
    findings = weakly_trained(SWAPPED)
    declared = found({Inputs(FC): 0.06}, 40)
    findings.measured.update(declared.measured)
    verdict = judged(findings, Inputs(FC))
    assert verdict.best == Candidate(Inputs(SWAPPED), TRUE_TARGET)
    assert verdict.is_as_declared is False
    assert "its norms, RoPE and window cannot be told" in told(verdict)


def test_nor_where_nothing_is_declared() -> None:
    verdict = judged(weakly_trained(FC), None)
    assert verdict.best == Candidate(Inputs(FC), TRUE_TARGET)


def test_a_norm_flag_beyond_chance_is_named() -> None:
    shares = {Inputs(FC, changes=LOST): 0.36, Inputs(FC): 0.15, FLOOR: 0.05}
    verdict = judged(found(shares, 40), Inputs(FC))
    assert verdict.best == Candidate(Inputs(FC, changes=LOST), TRUE_TARGET)
    assert verdict.is_as_declared is False
    assert "cannot be told" not in told(verdict).replace("an off-by-one cannot be seen", "")


MIDDLE = TargetRole(tensor="layer3", applies_norm=True)


def leaning_to_the_middle(apart: float) -> Leaning:
    """A draft that proposes tokens as often as layer3 has them; `apart` of final's are others."""
    own = np.array([60, 40, 0], np.float32)
    other = own + np.array([-100 * apart, 0, 100 * apart], np.float32)
    return leaning(
        Inputs(FC), [Spread(own, {TRUE_TARGET: other, MIDDLE: own}, {TRUE_TARGET: 20, MIDDLE: 15})] * 9
    )


def of_both(apart: float, own: float) -> Findings:
    """The same inputs against both targets, of which final's tokens are guessed more often."""
    middle = found({Inputs(FC): own, FLOOR: 0.01}, 40, MIDDLE)
    middle.measured.update(found({Inputs(FC): 0.2, FLOOR: 0.01}, 40).measured)
    return replace(middle, leaning=leaning_to_the_middle(apart))


def test_another_target_than_declared_is_told_however_often_each_is_guessed() -> None:
    verdict = judged(of_both(0.3, 0.15), Inputs(FC))
    assert verdict.best == Candidate(Inputs(FC), MIDDLE)
    assert verdict.close == ()
    assert verdict.is_as_declared is False
    assert "its proposals have 100.0% (100.0 to 100.0) in common with the tokens of layer3, normed" in told(
        verdict
    )
    assert "(it guesses more of final, 21.0%" in told(verdict)
    assert "says layer2, layer3, layer5, another target than it was trained on: 21.0%" in told(verdict)


def test_two_targets_that_cannot_be_told_apart_are_both_named() -> None:
    verdict = judged(of_both(0.0, 0.15), Inputs(FC))
    assert Candidate(Inputs(FC), TRUE_TARGET) in verdict.close
    assert verdict.is_as_declared
    assert "which target it was trained on is too close to call, it may be final too" in told(verdict)


def test_a_tensor_taken_twice_is_not_named_where_its_like_without_is_as_good() -> None:
    """As seen of a draft trained with its first two swapped: one of them twice scored 0.1 points more."""
    twice = Inputs(("layer3", "layer3", "layer5"))
    shares = {twice: 0.21, Inputs(SWAPPED): 0.2, Inputs(FC): 0.1, FLOOR: 0.05}
    findings = found(shares, 40)
    lucky = findings.measured[findings.best].learned.right
    lucky += np.tile([3, -4], 20)
    verdict = judged(findings, Inputs(FC))
    assert verdict.best == Candidate(Inputs(SWAPPED), TRUE_TARGET)
    assert Candidate(twice, TRUE_TARGET) in verdict.close
    assert verdict.is_as_declared is False


def test_what_is_declared_is_held_against_the_leader_not_against_the_likeliest() -> None:
    """What the leader beats beyond doubt is out, though a likelier one that is named does not beat it so."""
    leader = Inputs(SWAPPED, changes=LOST)
    findings = found({leader: 0.23, Inputs(SWAPPED): 0.22, Inputs(FC): 0.21, FLOOR: 0.05}, 40)
    for inputs, pattern in ((Inputs(SWAPPED), [6, -6]), (Inputs(FC), [0, 0])):
        scores = findings.measured[Candidate(inputs, TRUE_TARGET)]
        scores.learned.right[:] += np.tile(pattern, 20)
    verdict = judged(findings, Inputs(FC))
    assert verdict.best == Candidate(Inputs(SWAPPED), TRUE_TARGET)
    assert Candidate(Inputs(FC), TRUE_TARGET) in verdict.close
    assert verdict.is_as_declared is False
