"""The verdict in words: what the weights were trained with, and what that means for what is declared.

A candidate counts as the answer only where its lead over every other is beyond doubt at `LEVEL`, over
conversations; else the candidates that cannot be told apart are named together.
"""

from collections.abc import Sequence
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
    leading = _deciding(findings, boundaries)
    deciding = _likeliest(leading, trained)
    close, best = deciding.rivals(), deciding.best
    close += tuple(Candidate(best.inputs, role) for role in _targets_near(deciding))
    blind = [one for one in close if one.inputs.source != "own"]
    if best.inputs.source != "own" or blind:
        said.append(_blind(deciding))
        return Verdict(best, close, False, None, tuple(said))
    said.append(_trained_with(deciding))
    said += _target(deciding)
    said += _too_close(deciding, close)
    declared, words = _declared(declaration, deciding, (leading, findings, boundaries))
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


def _likeliest(findings: Findings, trained: Candidate | None) -> Findings:
    """Return the findings with the likeliest of what cannot be told apart as their best.

    That is what is said of the training. Else it is a draft that runs as its config says (a norm flag of a
    weakly trained draft moves its accuracy by less than chance), then one that takes no tensor twice.
    """
    near = (findings.best, *findings.rivals())
    if trained in near:
        return replace(findings, best=trained)
    return replace(findings, best=min(near, key=lambda one: _oddity(one.inputs)))


def _oddity(inputs: Inputs) -> tuple[bool, bool]:
    """Return what is unlikely of inputs, the least likely first."""
    return bool(inputs.changes), len(set(inputs.fc)) < len(inputs.fc)


def percent(tally: Tally, findings: Findings) -> str:
    """Return an accuracy with its interval, as `35.7% (33.1 to 38.2)`."""
    value, low, high = Bootstrap(findings.n_cases).accuracy(tally)
    return f"{value:.1%} ({_points(low)} to {_points(high)})"


def behind(apart: Interval) -> str:
    """Return by how much another is worse, as `behind by 4.4 points (1.0 to 7.9)`, or that it is ahead."""
    value, low, high = apart
    if value < 0:
        return f"ahead by {_points(-value)} points ({_points(-high)} to {_points(-low)})"
    return f"behind by {_points(value)} points ({_points(low)} to {_points(high)})"


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
    if role != findings.role:
        return boundaries
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


def _targets_near(findings: Findings) -> tuple[TargetRole, ...]:
    """Return the targets that cannot be told from the one that candidates were compared against."""
    return () if findings.leaning is None else findings.leaning.rivals(findings.best.target)


def _target(findings: Findings) -> list[str]:
    """Return a sentence that says why this target, where another may be thought of."""
    leaning, role = findings.leaning, findings.best.target
    if leaning is None or role not in leaning.alike:
        return []
    easiest = findings.easiest
    others = [one for one in leaning.alike if one != role]
    rivals = leaning.rivals(role)
    if not others or (role == TRUE_TARGET and easiest.target == role and not rivals):
        return []
    nearest = max(others, key=lambda one: leaning.alike[one].value)
    told = (
        f"its proposals have {_share(leaning.alike[role])} in common with the tokens of "
        f"{target_words(role)}, {_share(leaning.alike[nearest])} with those of {target_words(nearest)}"
    )
    if rivals:
        named = "; ".join(_some([target_words(one) for one in rivals]))
        told += f": which target it was trained on is too close to call, it may be {named} too"
    if easiest.target not in (role, *rivals):
        score = percent(findings.measured[easiest].learned, findings)
        told += f" (it guesses more of {target_words(easiest.target)}, {score}: easier tokens)"
    return [told]


def _share(part: Interval) -> str:
    return f"{part.value:.1%} ({_points(part.low)} to {_points(part.high)})"


def _too_close(findings: Findings, close: tuple[Candidate, ...]) -> list[str]:
    """Return sentences that name what cannot be told from the best, against the same target."""
    best = findings.best
    halves = [one for one in close if one.target == best.target]
    apart = {one: findings.compared(best, one) for one in halves}
    same = [words(one) for one in halves if apart[one] == Interval(0.0, 0.0, 0.0)]
    apart = {one: interval for one, interval in apart.items() if words(one) not in same}
    flags = [one for one in apart if replace(one.inputs, changes=best.inputs.changes) == best.inputs]
    near = [f"{words(one)} ({behind(apart[one])})" for one in apart if one not in flags]
    over = f"at {LEVEL:.0%} over {findings.n_cases} conversations"
    said = []
    if near:
        said.append(f"too close to call {over}: {'; '.join(_some(near))}")
    if flags:
        named = [f"{_changes(one.inputs)} ({behind(apart[one])})" for one in flags]
        taken = "" if best.inputs.changes else "; they are taken as the draft's config says"
        said.append(f"its norms, RoPE and window cannot be told {over}: {'; '.join(_some(named))}{taken}")
    if same:
        said.append(f"the same on every token, so not to be told apart: {'; '.join(_some(same))}")
    return said


def _changes(inputs: Inputs) -> str:
    return ", ".join(map(str, inputs.changes)) or "as the config says"


def _some(named: list[str]) -> list[str]:
    more = len(named) - SHOWN
    return [*named[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _declared(
    declaration: Declaration, deciding: Findings, others: Sequence[Findings | None]
) -> tuple[bool | None, list[str]]:
    trained = declaration.trained
    if trained is None:
        return None, []
    if trained == deciding.best and deciding.only_declared:
        return None, []
    if trained == deciding.best:
        return True, [f"that is what {declaration.trained_by} says"]
    held = next((one for one in others if one and trained in one.measured), None)
    if held is None:
        return None, [
            f"what {declaration.trained_by} says, {words(trained)}, is not stored and cannot be tried"
        ]
    score = percent(held.measured[trained].learned, held)
    if trained.target != held.best.target and trained.target not in _targets_near(held):
        said = (
            f"{declaration.trained_by} says {words(trained)}, another target than it was trained on: {score}"
        )
        return False, [said]
    apart = held.compared(held.best, trained)
    if not apart.is_above_zero:
        return True, [
            f"what {declaration.trained_by} says, {words(trained)}, cannot be told from it: {behind(apart)}"
        ]
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
