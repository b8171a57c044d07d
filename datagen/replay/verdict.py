"""The verdict in words: what the weights were trained with, and what that means for what is declared.

A candidate counts as the answer only where its lead over every other is beyond doubt at `LEVEL`, over
conversations; else the candidates that cannot be told apart are named together.
"""

from dataclasses import dataclass, replace

from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs, target_words
from datagen.replay.declaring import Declaration
from datagen.replay.score import LEVEL, Bootstrap, Interval, Tally
from datagen.replay.screening import Findings
from schemas.boundary import place_of
from schemas.problem import Problem
from schemas.wiring import TargetRole

SHOWN = 4
"""Candidates named in a sentence."""
MUCH_BETTER = 2.0
"""Times the accuracy on another target from which on it is taken for the trained one. Drafts of SmolLM2 that
were trained on the true target guessed a middle layer's easier tokens 1.2 to 1.4 times as often."""
FEW = 8
"""Conversations below which an interval over them is itself uncertain."""


@dataclass(frozen=True)
class Verdict:
    """What the weights were trained with, as far as it can be told."""

    best: Candidate
    close: tuple[Candidate, ...]
    """Those that cannot be told from it."""
    is_as_declared: bool | None
    """Whether what is said of the training may be right; `None` where that is unsaid or cannot be tried."""
    is_as_served: bool | None
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
    said: list[str] = []
    trained = declaration.trained
    easiest = findings
    findings = of_one_target(findings, trained.target if trained else TRUE_TARGET)
    is_easier = findings.best.target != easiest.best.target
    if boundaries is not None:
        roles = {one.target for one in boundaries.measured}
        role = trained.target if trained and trained.target in roles else findings.best.target
        boundaries = of_one_target(boundaries, role)
    deciding = _deciding(findings, boundaries)
    close = deciding.rivals()
    if trained in close:
        # Of what cannot be told apart, what is said of the training is the likeliest.
        deciding = replace(deciding, best=trained)
        close = deciding.rivals()
    best = deciding.best
    blind = [one for one in close if one.inputs.source != "own"]
    if best.inputs.source != "own" or blind:
        said.append(_blind(deciding))
        return Verdict(best, close, False, None, tuple(said))
    said.append(_trained_with(deciding))
    said += _too_close(deciding, close)
    if is_easier:
        said.append(_easier(easiest))
    declared, words = _declared(declaration, deciding, findings, boundaries)
    if declared and is_easier:
        declared = None
    said += words
    served, words = _served(declaration, findings, boundaries, best)
    said += words
    said += _off_by_one(boundaries, best, why_no_boundaries, n_layers)
    if findings.n_cases < FEW:
        said.append(f"{findings.n_cases} conversations are few: intervals over them are themselves uncertain")
    if declaration.problems:
        declared = False
        said += [f"{problem.where}: {problem.message}" for problem in declaration.problems]
    return Verdict(best, close, declared, served, tuple(said))


def of_one_target(findings: Findings, role: TargetRole) -> Findings:
    """Return the findings against one target: accuracies against two are not of the same tokens.

    It is `role`, unless another target is guessed so much better that easier tokens do not explain it.
    """
    held = {one: scores for one, scores in findings.measured.items() if one.target == role}
    if findings.best.target == role or not held:
        return findings
    best = max(held, key=lambda one: held[one].learned.pooled)
    if findings.scores.learned.pooled >= MUCH_BETTER * held[best].learned.pooled:
        return findings
    return replace(findings, measured=held, best=best)


def percent(tally: Tally, findings: Findings) -> str:
    """Return an accuracy with its interval, as `35.7% (33.1 to 38.2)`."""
    value, low, high = Bootstrap(findings.n_cases).accuracy(tally)
    return f"{value:.1%} ({_points(low)} to {_points(high)})"


def behind(apart: Interval) -> str:
    """Return by how much another is worse, as `behind by 4.4 points (1.0 to 7.9)`."""
    value, low, high = map(_points, apart)
    return f"behind by {value} points ({low} to {high})"


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def words(candidate: Candidate) -> str:
    """Return a candidate as a person reads it; the true target goes without saying."""
    target = "" if candidate.target == TRUE_TARGET else f", with the target {target_words(candidate.target)}"
    return f"{candidate.inputs}{target}"


def _deciding(findings: Findings, boundaries: Findings | None) -> Findings:
    """Return the findings that decide: the audit set's where a boundary that is not stored wins there."""
    if boundaries is None or boundaries.best in findings.measured:
        return findings
    inputs, role = boundaries.best
    wanted = {*inputs.fc, *([] if role == TRUE_TARGET else [role.tensor])}
    if wanted <= set(findings.names):
        return findings
    near = boundaries.measured.get(findings.best)
    if near is not None and boundaries.compared(boundaries.best, findings.best).is_above_zero:
        return boundaries
    return findings


def _blind(findings: Findings) -> str:
    return (
        f"nothing stands out: the best, {words(findings.best)}, scores "
        f"{percent(findings.scores.learned, findings)}, no more than without the sample's states: is this "
        "draft of this target, and are these states its?"
    )


def _trained_with(findings: Findings) -> str:
    scores = findings.scores
    learned = percent(scores.learned, findings)
    wrong = ""
    if findings.best.target != TRUE_TARGET:
        wrong = f", and of what the true target says {percent(scores.by['server'], findings)}"
    if findings.only_declared:
        return (
            f"of what is declared, which alone was tried, {words(findings.best)} scores best: {learned} of "
            f"the tokens that the draft knows{wrong}; try all wirings to learn what it was trained with"
        )
    told = f"these weights were trained with {words(findings.best)}"
    return f"{told}: they score {learned} of the tokens they know{wrong}"


def _easier(findings: Findings) -> str:
    told = f"{target_words(findings.best.target)}: {percent(findings.scores.learned, findings)}"
    return (
        f"another target's tokens are guessed better, those of {told}; a middle layer's are easier, so that "
        "alone does not say that it was the target in training"
    )


def _too_close(findings: Findings, close: tuple[Candidate, ...]) -> list[str]:
    """Return sentences that name what cannot be told from the best; only one half of it changed at a time."""
    best = findings.best
    halves = [one for one in close if best.inputs == one.inputs or best.target == one.target]
    apart = {one: findings.compared(best, one) for one in halves}
    same = [words(one) for one in halves if apart[one] == Interval(0.0, 0.0, 0.0)]
    near = [f"{words(one)} ({behind(apart[one])})" for one in halves if words(one) not in same]
    over = f"at {LEVEL:.0%} over {findings.n_cases} conversations"
    said = []
    if near:
        said.append(f"too close to call {over}: {'; '.join(_some(near))}")
    if same:
        said.append(f"the same on every token, so not to be told apart: {'; '.join(_some(same))}")
    return said


def _some(named: list[str]) -> list[str]:
    more = len(named) - SHOWN
    return [*named[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _declared(
    declaration: Declaration, deciding: Findings, findings: Findings, boundaries: Findings | None
) -> tuple[bool | None, list[str]]:
    trained = declaration.trained
    if trained is None:
        return None, []
    if trained == deciding.best and deciding.only_declared:
        return None, []
    if trained == deciding.best:
        return True, [f"that is what {declaration.trained_by} says"]
    held = next((one for one in (deciding, findings, boundaries) if one and trained in one.measured), None)
    if held is None:
        return None, [
            f"what {declaration.trained_by} says, {words(trained)}, is not stored and cannot be tried"
        ]
    apart = held.compared(held.best, trained)
    if not apart.is_above_zero:
        return True, [
            f"what {declaration.trained_by} says, {words(trained)}, cannot be told from it: {behind(apart)}"
        ]
    score = percent(held.measured[trained].learned, held)
    return False, [f"{declaration.trained_by} says {words(trained)}, which scores {score}: {behind(apart)}"]


def _served(
    declaration: Declaration, findings: Findings, boundaries: Findings | None, best: Candidate
) -> tuple[bool | None, list[str]]:
    served = declaration.served
    if served is None:
        return None, []
    if served == best.inputs:
        return True, [f"{declaration.served_by} would feed the same"]
    for held in (findings, boundaries):
        fed = held and held.of(served, best.target)
        fit = held and held.measured.get(best)
        if held and fed and fit:
            mine, its = fit.by["server"], fed[1].by["server"]
            apart = Bootstrap(held.n_cases).difference(mine, its, held.n_tried)
            told = f"expect {percent(its, held)} instead of {percent(mine, held)}, {behind(apart)}"
            if not apart.is_above_zero:
                return True, [f"{declaration.served_by} would feed {served}, which serves as well: {told}"]
            return False, [f"the server declared, {declaration.served_by}, would feed {served}: {told}"]
    return None, [f"what {declaration.served_by} would feed, {served}, is not stored and cannot be tried"]


def _off_by_one(boundaries: Findings | None, best: Candidate, why_not: str, n_layers: int) -> list[str]:
    if boundaries is None:
        return [f"an off-by-one cannot be seen: {why_not}"]
    near = [
        one
        for one in boundaries.measured
        if one.target == best.target and is_off_by_one(one.inputs, best.inputs, n_layers)
    ]
    if best not in boundaries.measured or not near:
        return []
    nearest = max(near, key=lambda one: boundaries.measured[one].learned.pooled)
    apart = boundaries.compared(best, nearest)
    where = f"on the {boundaries.n_cases} conversations of the audit set, which alone has every boundary,"
    if apart.is_above_zero:
        return [f"no off-by-one: {where} the nearest, {nearest.inputs}, is {behind(apart)}"]
    return [f"an off-by-one is too close to call: {where} {nearest.inputs} is {behind(apart)}"]


def is_off_by_one(inputs: Inputs, best: Inputs, n_layers: int) -> bool:
    """Say whether inputs differ by one boundary from the best, in one slot or in several, and in no more."""
    if replace(inputs, fc=best.fc) != best:
        return False
    steps = [abs(_depth(a, n_layers) - _depth(b, n_layers)) for a, b in zip(inputs.fc, best.fc, strict=True)]
    return max(steps) == 1


def _depth(name: str, n_layers: int) -> int:
    place = place_of(name, n_layers)
    if isinstance(place, Problem):
        raise ValueError(str(place))
    return place.boundary
