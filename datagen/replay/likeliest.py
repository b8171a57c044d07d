"""Which wiring is named, of those that cannot be told apart: tensors, shift and target first, flags apart.

A draft can score higher with a norm lost than with the flags that it was trained with: of a rightly trained
one 0.4 points were seen, over 40 conversations. So flags make no wiring better than another, and they are
called wrong only where they cost more than that.
"""

from dataclasses import replace
from typing import Literal

from datagen.replay.candidates import Candidate
from datagen.replay.screening import Findings

FLAG_EFFECT = 0.02
"""The share of tokens that other flags must win beyond doubt before those of the config are called wrong."""

Standing = Literal["out", "nowhere", "untold"]


def wiring_of(candidate: Candidate) -> Candidate:
    """Return a candidate as the draft's config runs it: its tensors in order, its shift and its target."""
    return candidate._replace(inputs=replace(candidate.inputs, changes=()))


def near_wirings(findings: Findings) -> tuple[Candidate, ...]:
    """Return the wirings that under some flags cannot be told from the leader, the leader's own first."""
    near = (findings.best, *findings.rivals())
    return tuple(dict.fromkeys(wiring_of(one) for one in near if one.inputs.source == "own"))


def with_flags(findings: Findings, wiring: Candidate) -> Candidate:
    """Return a wiring as the draft's config runs it, unless other flags are better by `FLAG_EFFECT`."""
    variants = [one for one in findings.measured if wiring_of(one) == wiring]
    better = [
        one
        for one in variants
        if wiring not in findings.measured or findings.compared(one, wiring).low > FLAG_EFFECT
    ]
    return max(better, key=findings.merit, default=wiring)


def likeliest(findings: Findings, trained: Candidate | None) -> Findings:
    """Return the findings with the likeliest of what cannot be told apart as their best.

    That is what is said of the training, where under any flags it cannot be told from the leader, or where
    the likeliest of the others is not better beyond doubt. Those are the ones that take no tensor twice.
    """
    near = near_wirings(findings)
    if not near:
        return findings
    named = with_flags(findings, min(near, key=_takes_one_twice))
    if trained is not None and (wiring_of(trained) in near or not _is_beaten(findings, named, trained)):
        named = with_flags(findings, wiring_of(trained))
    return replace(findings, best=named)


def _is_beaten(findings: Findings, named: Candidate, trained: Candidate) -> bool:
    if trained not in findings.measured or trained.target != findings.role:
        return True
    return findings.compared(named, trained).is_above_zero


def _takes_one_twice(wiring: Candidate) -> bool:
    return len(set(wiring.inputs.fc)) < len(wiring.inputs.fc)


def standing(findings: Findings, trained: Candidate | None) -> Standing:
    """Say whether the draft scores more than it does without the sample's own states.

    It does where what is said of its training does, or where the leader does, though it is the best of many.
    It does not where the leader would not even if it had not been chosen. Else that is untold.
    """
    best = findings.best
    if best.inputs.source != "own":
        return "nowhere"
    floors = [one for one in findings.measured if one.inputs.source != "own" and one.target == findings.role]

    def beats_all(one: Candidate, comparisons: int) -> bool:
        return all(findings.compared(one, floor, comparisons).is_above_zero for floor in floors)

    if beats_all(best, findings.n_tried):
        return "out"
    if trained in findings.measured and trained.target == findings.role and beats_all(trained, len(floors)):
        return "out"
    return "untold" if beats_all(best, len(floors)) else "nowhere"
