"""The verdict's sentences: what was found, with its interval, as a person reads it."""

from dataclasses import replace

from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs, target_words
from datagen.replay.likeliest import FLAG_EFFECT, wiring_of
from datagen.replay.score import LEVEL, Interval, Tally, bootstrap_over
from datagen.replay.screening import Findings
from schemas.boundary import all_names, place_of
from schemas.problem import Problem
from schemas.wiring import TargetRole

SHOWN = 4
"""Candidates named in a sentence."""
FEW = 8
"""Conversations below which nothing is held against a draft or a server."""
MORE = f"replay {FEW} conversations or more (--samples)"


def percent(tally: Tally, findings: Findings) -> str:
    """Return an accuracy with its interval, as `35.7% (33.1 to 38.2)`."""
    value, low, high = bootstrap_over(findings.n_cases).accuracy(tally)
    return f"{value:.1%} ({points(low)} to {points(high)})"


def behind(apart: Interval) -> str:
    """Return by how much another is worse, as `behind by 4.4 points (1.0 to 7.9)`, or that it is ahead."""
    value, low, high = apart
    if value < 0:
        return f"ahead by {points(-value)} points ({points(-high)} to {points(-low)})"
    return f"behind by {points(value)} points ({points(low)} to {points(high)})"


def points(share: float) -> str:
    """Return a share in points."""
    return f"{100 * share:.1f}"


def words(candidate: Candidate) -> str:
    """Return a candidate as a person reads it; the true target goes without saying."""
    target = "" if candidate.target == TRUE_TARGET else f", with the target {target_words(candidate.target)}"
    return f"{candidate.inputs}{target}"


def nothing_stands_out(findings: Findings) -> str:
    """Say that the leader scores what a draft does without the sample's states."""
    return (
        f"nothing stands out: the best, {words(findings.best)}, scores "
        f"{percent(findings.scores.learned, findings)}, no more than without the sample's states: is this "
        "draft of this target, and are these states its?"
    )


def nothing_can_be_told(findings: Findings) -> str:
    """Say that intervals are too wide for anything, and what would make them narrower."""
    if findings.n_cases < 2:
        return f"one conversation tells nothing, since intervals are over conversations: {MORE}"
    return (
        f"over {findings.n_cases} conversations nothing can be told: the best, {words(findings.best)}, "
        f"scores {percent(findings.scores.learned, findings)}, which may be no more than without the "
        "sample's states: replay more (--samples)"
    )


def too_few(findings: Findings) -> str:
    """Say that what was found is held against nobody."""
    return f"{findings.n_cases} conversations are too few to hold against a draft or a server: {MORE}"


def trained_with(findings: Findings, *, is_alone: bool) -> str:
    """Say what the weights were trained with, or may have been where others are as likely."""
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
    were = "were" if is_alone else "may have been"
    told = f"these weights {were} trained with {words(findings.best)}"
    return f"{told}: they score {learned} of the tokens they know{wrong}"


def targets_near(findings: Findings) -> tuple[TargetRole, ...]:
    """Return the targets that cannot be told from the one that candidates were compared against."""
    return () if findings.leaning is None else findings.leaning.rivals(findings.best.target)


def why_this_target(findings: Findings) -> list[str]:
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
    return f"{part.value:.1%} ({points(part.low)} to {points(part.high)})"


def too_close(findings: Findings, close: tuple[Candidate, ...]) -> list[str]:
    """Return sentences that name what cannot be told from the best, against the same target.

    Of another wiring one candidate stands for all, that with the best one's flags where it is as close.
    """
    best = findings.best
    halves = [one for one in close if one.target == best.target]
    apart = {one: findings.compared(best, one) for one in halves}
    same = [one for one in halves if apart[one] == Interval(0.0, 0.0, 0.0)]
    others = [one for one in halves if one not in same]
    flags = [one for one in others if wiring_of(one) == wiring_of(best)]
    wirings = dict.fromkeys(wiring_of(one) for one in others if one not in flags)
    near = [_stands_for(wiring, others, best) for wiring in wirings]
    over = f"at {LEVEL:.0%} over {findings.n_cases} conversations"
    said = []
    if near:
        named = [f"{words(one)} ({behind(apart[one])})" for one in near]
        said.append(f"too close to call {over}: {'; '.join(_some(named))}")
    if flags:
        named = [f"{_changes(one.inputs)} ({behind(apart[one])})" for one in flags]
        taken = "" if best.inputs.changes else "; they are taken as the draft's config says"
        if any(apart[one].high < 0 for one in flags):
            taken += f", since a lost norm can score more: it takes {points(FLAG_EFFECT)} points beyond doubt"
        said.append(f"its norms, RoPE and window cannot be told {over}: {'; '.join(_some(named))}{taken}")
    if same:
        named = [words(one) for one in same]
        said.append(f"the same on every token, so not to be told apart: {'; '.join(_some(named))}")
    return said


def _stands_for(wiring: Candidate, others: list[Candidate], best: Candidate) -> Candidate:
    mine = [one for one in others if wiring_of(one) == wiring]
    return next((one for one in mine if one.inputs.changes == best.inputs.changes), mine[0])


def _changes(inputs: Inputs) -> str:
    return ", ".join(map(str, inputs.changes)) or "as the config says"


def _some(named: list[str]) -> list[str]:
    more = len(named) - SHOWN
    return [*named[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def off_by_one(boundaries: Findings | None, best: Candidate, why_not: str, n_layers: int) -> list[str]:
    """Return a sentence on the best wiring's neighbours, which only the audit set has."""
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
    having = boundaries_of(boundaries, n_layers)
    where = f"on the {boundaries.n_cases} conversations of the audit set, which alone has {having},"
    if apart.is_above_zero:
        return [f"no off-by-one: {where} the nearest, {nearest.inputs}, is {behind(apart)}"]
    return [f"an off-by-one is too close to call: {where} {nearest.inputs} is {behind(apart)}"]


def boundaries_of(findings: Findings, n_layers: int) -> str:
    """Return in words which boundaries could be tried."""
    lacking = [name for name in all_names(n_layers) if name not in findings.names]
    return f"every boundary but {', '.join(lacking)}" if lacking else "every boundary"


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
