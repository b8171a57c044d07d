"""The verdict: what the weights were trained with, and what that means for what is declared.

A candidate counts as the answer only where its lead over every other is beyond doubt at `LEVEL`, over
conversations; else the candidates that cannot be told apart are named together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from datagen.replay.candidates import TRUE_TARGET, Candidate
from datagen.replay.declaring import Declaration
from datagen.replay.likeliest import likeliest, standing, wiring_of
from datagen.replay.score import bootstrap_over
from datagen.replay.screening import Findings
from datagen.replay.verdict_words import (
    FEW,
    behind,
    nothing_can_be_told,
    nothing_stands_out,
    off_by_one,
    percent,
    targets_near,
    too_close,
    too_few,
    trained_with,
    why_this_target,
    words,
)


@dataclass(frozen=True)
class Verdict:
    """What the weights were trained with, as far as it can be told."""

    best: Candidate
    close: tuple[Candidate, ...]
    """Those that cannot be told from it."""
    is_as_declared: bool | None
    """Whether what is said of the training may be right.

    `None` where that is unsaid, cannot be tried, or was tried on too few conversations to tell.
    """
    is_as_served: bool | None
    """Whether the server feeds what serves as well; `None` as of the training."""
    sentences: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return self.is_as_declared is not False and self.is_as_served is not False


def judge(
    declaration: Declaration,
    findings: Findings,
    boundaries: Findings | None,
    why_no_boundaries: str,
    n_layers: int,
) -> Verdict:
    """Return the verdict on what was found on stored tensors and, where it is there, on the audit set."""
    leading = _deciding(findings, boundaries)
    stands = standing(leading, declaration.trained)
    if leading.n_cases < 2 or stands != "out":
        return _with_problems(declaration, _blind(leading, is_nothing=stands == "nowhere"))
    deciding = likeliest(leading, declaration.trained)
    best = deciding.best
    close = tuple(one for one in deciding.rivals() if one.inputs.source == "own")
    close += tuple(Candidate(best.inputs, role) for role in targets_near(deciding))
    is_alone = {wiring_of(one) for one in close} <= {wiring_of(best)}
    said = [
        trained_with(deciding, is_alone=is_alone),
        *why_this_target(deciding),
        *too_close(deciding, close),
    ]
    declared, told = _declared(declaration, deciding, (findings, boundaries))
    said += told
    served, told = _served(declaration, (findings, boundaries), best)
    said += told
    said += off_by_one(boundaries, best, why_no_boundaries, n_layers)
    if deciding.n_cases < FEW:
        declared = served = None
        said.append(too_few(deciding))
    return _with_problems(declaration, Verdict(best, close, declared, served, tuple(said)))


def _blind(leading: Findings, *, is_nothing: bool) -> Verdict:
    """Return the verdict on a draft that scores no more than without a sample's states, or may not."""
    if is_nothing and leading.n_cases >= FEW:
        return Verdict(leading.best, (), False, None, (nothing_stands_out(leading),))
    return Verdict(leading.best, (), None, None, (nothing_can_be_told(leading),))


def _with_problems(declaration: Declaration, verdict: Verdict) -> Verdict:
    """Return the verdict with what was wrong before anything was run, which no interval softens."""
    declared = False if declaration.problems else verdict.is_as_declared
    served = False if declaration.served_problems else verdict.is_as_served
    told = dict.fromkeys(map(str, [*declaration.problems, *declaration.served_problems]))
    sentences = (*verdict.sentences, *told)
    return Verdict(verdict.best, verdict.close, declared, served, sentences)


def _deciding(findings: Findings, boundaries: Findings | None) -> Findings:
    """Return the findings that decide: the audit set's where a boundary that is not stored wins there."""
    if boundaries is None or boundaries.best in findings.measured:
        return findings
    inputs, role = boundaries.best
    wanted = {*inputs.fc, *([] if role == TRUE_TARGET else [role.tensor])}
    if wanted <= set(findings.names):
        return findings
    if role != findings.role:
        return boundaries
    near = boundaries.measured.get(findings.best)
    if near is not None and boundaries.compared(boundaries.best, findings.best).is_above_zero:
        return boundaries
    return findings


def _declared(
    declaration: Declaration, deciding: Findings, others: Sequence[Findings | None]
) -> tuple[bool | None, list[str]]:
    trained, by = declaration.trained, declaration.trained_by
    if trained is None or (trained == deciding.best and deciding.only_declared):
        return None, []
    if trained == deciding.best:
        return True, [f"that is what {by} says"]
    held = next((one for one in (deciding, *others) if one and trained in one.measured), None)
    if held is None:
        return None, [f"what {by} says, {words(trained)}, is not stored and cannot be tried"]
    score = percent(held.measured[trained].learned, held)
    if trained.target != held.best.target and trained.target not in targets_near(held):
        told = f"{by} says {words(trained)}, another target than it was trained on: {score}"
        return _unless_few(held), [told]
    named = held if held is deciding else likeliest(held, trained)
    if named.best == trained or trained.target != named.best.target:
        apart = behind(held.compared(held.best, trained))
        return True, [f"what {by} says, {words(trained)}, cannot be told from it: {apart}"]
    apart = behind(named.compared(named.best, trained))
    return _unless_few(held), [f"{by} says {words(trained)}, which scores {score}: {apart}"]


def _unless_few(held: Findings) -> bool | None:
    """Return `False`, which accuses, unless an audit set of few conversations is all that says so."""
    return None if held.n_cases < FEW else False


def _served(
    declaration: Declaration, every: Sequence[Findings | None], best: Candidate
) -> tuple[bool | None, list[str]]:
    served, by = declaration.served, declaration.served_by
    if served is None:
        return None, []
    if served == best.inputs:
        return True, [f"{by} would feed the same"]
    for held in every:
        fed = held and held.of(served, best.target)
        fit = held and held.measured.get(best)
        if held and fed and fit:
            mine, its = fit.by["server"], fed[1].by["server"]
            apart = bootstrap_over(held.n_cases).difference(mine, its, held.n_tried)
            told = f"expect {percent(its, held)} instead of {percent(mine, held)}, {behind(apart)}"
            if not apart.is_above_zero:
                return True, [f"{by} would feed {served}, which serves as well: {told}"]
            return _unless_few(held), [f"the server declared, {by}, would feed {served}: {told}"]
    return None, [f"what {by} would feed, {served}, is not stored and cannot be tried"]
