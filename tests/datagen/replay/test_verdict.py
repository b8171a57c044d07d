"""What cannot be told is said to be so, and the likeliest of it is named: no norm flag out of chance."""

from dataclasses import replace

import numpy as np
import pytest

from datagen.replay.candidates import TRUE_TARGET, Candidate, Change, Inputs
from datagen.replay.declaring import Declaration
from datagen.replay.leaning import Leaning, Spread, leaning
from datagen.replay.screening import Findings
from datagen.replay.verdict import Verdict, judge
from schemas.problem import Problem
from schemas.wiring import TargetRole
from tests.datagen.replay.findings import found

FC = ("layer2", "layer3", "layer5")
SWAPPED = ("layer3", "layer2", "layer5")
LOST = (Change("norm_before_residual"), Change("head_norm"))
FLOOR = Inputs(FC, source="zeros")


def declared_as(trained: Inputs | None) -> Declaration:
    declared = None if trained is None else Candidate(trained, TRUE_TARGET)
    return Declaration(declared, "the draft's config", None, "", (), ())


def judged(findings: Findings, trained: Inputs | None) -> Verdict:
    return judge(declared_as(trained), findings, None, "there is no audit set", 6)


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


def nudged(findings: Findings, patterns: dict[Inputs, list[int]]) -> Findings:
    """Move the right pairs of candidates up and down in turn, so that differences are in doubt."""
    for inputs, pattern in patterns.items():
        right = findings.measured[Candidate(inputs, TRUE_TARGET)].learned.right
        right += np.resize(pattern, len(right))
    return findings


def test_what_is_declared_is_not_held_against_a_leader_that_has_norms_lost() -> None:
    """Like with like: the leader's own wiring, as the config runs it, does not beat what is declared."""
    leader = Inputs(SWAPPED, changes=LOST)
    findings = found({leader: 0.23, Inputs(SWAPPED): 0.22, Inputs(FC): 0.21, FLOOR: 0.05}, 40)
    verdict = judged(nudged(findings, {Inputs(SWAPPED): [6, -6]}), Inputs(FC))
    assert verdict.best == Candidate(Inputs(FC), TRUE_TARGET)
    assert Candidate(Inputs(SWAPPED), TRUE_TARGET) in verdict.close
    assert verdict.is_as_declared
    assert "these weights may have been trained with layer2, layer3, layer5: they score" in told(verdict)
    assert "too close to call at 99% over 40 conversations: layer3, layer2, layer5 (ahead by" in told(verdict)


@pytest.mark.parametrize("n", [8, 40])
def test_what_is_declared_stands_where_with_a_norm_lost_it_cannot_be_told_from_the_leader(n: int) -> None:
    """As seen of a rightly trained draft: the leader was ahead of its exact wiring by 0.4 to 2.2 points."""
    one_lost = Inputs(FC, changes=LOST[:1])
    leader = Inputs(("final_normed", "layer3", "layer5"), changes=LOST)
    findings = found({leader: 0.147, one_lost: 0.145, Inputs(FC): 0.134, FLOOR: 0.03}, n)
    nudged(findings, {one_lost: [5, -5]})
    assert findings.compared(findings.best, Candidate(Inputs(FC), TRUE_TARGET)).is_above_zero
    verdict = judged(findings, Inputs(FC))
    assert verdict.best == Candidate(Inputs(FC), TRUE_TARGET)
    assert verdict.is_as_declared
    assert verdict.is_well
    assert "its norms, RoPE and window cannot be told" in told(verdict)


def test_another_wiring_that_beats_every_flag_of_what_is_declared_is_named() -> None:
    shares = {
        Inputs(SWAPPED): 0.23,
        Inputs(FC): 0.2,
        Inputs(FC, changes=LOST): 0.205,
        Inputs(FC, changes=LOST[:1]): 0.19,
        FLOOR: 0.05,
    }
    verdict = judged(found(shares, 40), Inputs(FC))
    assert verdict.best == Candidate(Inputs(SWAPPED), TRUE_TARGET)
    assert verdict.is_as_declared is False
    assert "these weights were trained with layer3, layer2, layer5: they score" in told(verdict)
    assert "says layer2, layer3, layer5, which scores 21.0%" in told(verdict)


@pytest.mark.parametrize(("ahead", "is_called_wrong"), [(0.01, False), (0.03, True)])
def test_flags_are_called_wrong_only_beyond_two_points(ahead: float, is_called_wrong: bool) -> None:
    """Beyond doubt ahead are both; a lost norm can genuinely score a little more than what was trained."""
    lost = Inputs(FC, changes=LOST)
    verdict = judged(found({lost: 0.2 + ahead, Inputs(FC): 0.2, FLOOR: 0.05}, 40), Inputs(FC))
    assert verdict.is_as_declared is not is_called_wrong
    assert verdict.best == Candidate(lost if is_called_wrong else Inputs(FC), TRUE_TARGET)
    assert ("it takes 2.0 points beyond doubt" in told(verdict)) is not is_called_wrong


@pytest.mark.parametrize(("n", "declared"), [(2, None), (7, None), (8, False)])
def test_few_conversations_accuse_nobody(n: int, declared: bool | None) -> None:
    verdict = judged(found({Inputs(SWAPPED): 0.4, Inputs(FC): 0.2, FLOOR: 0.05}, n), Inputs(FC))
    assert verdict.is_as_declared is declared
    assert (f"{n} conversations are too few to hold against a draft" in told(verdict)) is (declared is None)


def test_one_conversation_tells_nothing() -> None:
    verdict = judged(found({Inputs(SWAPPED): 0.4, Inputs(FC): 0.2, FLOOR: 0.05}, 1), Inputs(FC))
    assert verdict.is_as_declared is None
    assert verdict.is_well
    assert told(verdict).startswith("one conversation tells nothing")
    assert "nothing stands out" not in told(verdict)


def test_a_draft_as_good_without_the_states_is_none_of_this_target() -> None:
    findings = found({Inputs(SWAPPED): 0.06, Inputs(FC): 0.055, FLOOR: 0.055}, 40)
    verdict = judged(nudged(findings, {FLOOR: [4, -4]}), Inputs(FC))
    assert verdict.is_as_declared is False
    assert told(verdict).startswith("nothing stands out")


def test_what_only_the_number_of_wirings_leaves_in_doubt_is_called_untold() -> None:
    """Ahead of the floor by what one comparison would call beyond doubt, and 300 do not."""
    findings = found({Inputs(SWAPPED): 0.3, FLOOR: 0.2}, 8)
    findings = replace(nudged(findings, {FLOOR: [6, -6]}), n_tried=300)
    verdict = judged(findings, Inputs(FC))
    assert verdict.is_as_declared is None
    assert "over 8 conversations nothing can be told" in told(verdict)
    declared = judged(findings, Inputs(SWAPPED))
    assert declared.is_as_declared, "of what was asked about before, one comparison is enough"


UNFIT = Problem(where="fc", kind="slots", message="expected 3 tensors, got 4", repair="name the right one")


@pytest.mark.parametrize("side", ["trained", "served"])
def test_a_problem_is_told_with_its_repair_and_counts_for_its_own_side(side: str) -> None:
    findings = found({Inputs(FC): 0.4, Inputs(SWAPPED): 0.2, FLOOR: 0.05}, 40)
    plain = declared_as(Inputs(FC))
    declaration = (
        replace(plain, problems=(UNFIT,)) if side == "trained" else replace(plain, served_problems=(UNFIT,))
    )
    verdict = judge(declaration, findings, None, "there is no audit set", 6)
    assert verdict.is_as_declared is (side == "served")
    assert verdict.is_as_served is (False if side == "served" else None)
    assert "fc: expected 3 tensors, got 4 (name the right one)" in verdict.sentences


@pytest.mark.parametrize(("n", "declared"), [(4, None), (8, False)])
def test_what_only_an_audit_set_can_try_is_not_held_against_a_draft_by_few(
    n: int, declared: bool | None
) -> None:
    """The tensors that are declared are not stored: forty conversations say nothing of them."""
    unstored = Inputs(("layer2", "layer3", "layer4"))
    stored = found({Inputs(FC): 0.5, FLOOR: 0.05}, 40)
    every = found({Inputs(FC): 0.5, unstored: 0.2}, n)
    verdict = judge(declared_as(unstored), stored, every, "", 6)
    assert verdict.is_as_declared is declared
    assert "says layer2, layer3, layer4, which scores" in told(verdict)
