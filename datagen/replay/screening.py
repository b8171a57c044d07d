"""Many candidates, few of them good: all are tried on a few conversations, and the best on all of them.

Inputs are ranked by the best that they score against any target, since a draft may have been trained on a
wrong one. What was declared stays in to the end, whatever it scores, and so do its variants.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from datagen.replay.candidates import (
    TRUE_TARGET,
    Candidate,
    Inputs,
    floors,
    neighbours,
    ordered_choices,
    same_logits,
    targets,
    variants,
)
from datagen.replay.measuring import Cases, Measured, Runner, Scores, Watch, measure
from datagen.replay.score import Bootstrap, Interval
from schemas.wiring import TargetRole

MIN_PAIRS = 500
"""Counted pairs of a round: right against swapped is 0.357 against 0.333, so few would mislead."""
ROUNDS = ((0.3, 48), (1.0, 16), (2.0, 6))
"""Of each round before the last: its share of those pairs, and how many inputs go on beside the declared."""
VARIED = 3
"""Leaders that are tried otherwise too: a token early or late, a norm lost."""
KEPT_TARGETS = 3


@dataclass(frozen=True)
class Question:
    """What is declared of a draft, and how much is to be tried."""

    trained: Candidate | None
    """As the trainer or the card says."""
    served: Inputs | None
    """As a server will feed it."""
    n_layers: int
    try_all: bool = True
    steps: int = 3
    """How deep the teacher-forced chain goes."""
    min_pairs: int = MIN_PAIRS
    """Counted pairs of the first round."""

    @property
    def declared(self) -> tuple[Inputs, ...]:
        """The inputs that somebody declares, each once."""
        both = [self.trained.inputs if self.trained else None, self.served]
        return tuple(dict.fromkeys(one for one in both if one is not None))


@dataclass(frozen=True)
class Findings:
    """What a set of samples says: every candidate of the last round, and which is the best."""

    measured: Measured
    best: Candidate
    n_cases: int
    n_tried: int
    """Different inputs that were tried in any round."""
    names: tuple[str, ...] = ()
    """The tensors that could be chosen."""
    left_out: str | None = None
    only_declared: bool = False
    """Whether nothing but what is declared was tried, so that the best of it need not be what was trained."""

    @property
    def scores(self) -> Scores:
        """Those of the best."""
        return self.measured[self.best]

    def compared(self, one: Candidate, other: Candidate) -> Interval:
        """Return by how much `one` beats `other`: at step 1, or where they are equal there, in the chain.

        The chain tells what step 1 cannot: a norm of what is fed back. The interval allows for all that were
        tried, since the best of many is flattered.
        """
        bootstrap = Bootstrap(self.n_cases)
        mine, its = self.measured[one], self.measured[other]
        step = bootstrap.difference(mine.learned, its.learned, self.n_tried)
        same = (mine.learned.right == its.learned.right).all()
        return bootstrap.difference(mine.chain[-1], its.chain[-1], self.n_tried) if same else step

    def rivals(self) -> tuple[Candidate, ...]:
        """Return the candidates that are too close to the best to be told from it, the nearest first."""
        near = [
            one
            for one in self.measured
            if one != self.best and not self.compared(self.best, one).is_above_zero
        ]
        return tuple(sorted(near, key=lambda one: -self.measured[one].learned.pooled))

    def of(self, inputs: Inputs, role: TargetRole | None = None) -> tuple[Candidate, Scores] | None:
        """Return the scores of these inputs, against `role` or the best candidate's target."""
        candidate = Candidate(inputs, role or self.best.target)
        scores = self.measured.get(candidate)
        return None if scores is None else (candidate, scores)


def search(runner: Runner, cases: Cases, question: Question, watch: Watch) -> Findings:
    """Try the declared inputs and, where all are asked for, every other; refine the best on all cases."""
    role = _declared_target(question, cases)
    declared = tuple(one for one in question.declared if set(one.fc) <= set(cases.names))
    if not question.try_all:
        roles = tuple(dict.fromkeys([role, TRUE_TARGET]))
        alone = _last(runner, cases, question, [*declared, *floors(declared[0])], roles, watch)
        return replace(alone, only_declared=True)
    choices = ordered_choices(cases.names, runner.n_slots)
    kept_in = [*declared, *(near for one in declared for near in variants(one, runner.changes))]
    every = tuple(dict.fromkeys([*kept_in, *choices.inputs]))
    roles, tried, pool = _targets(cases), set(every), every
    for share, kept in ROUNDS:
        count = _count(cases, question.min_pairs * share)
        watch.stage(f"screening {len(pool)} wirings on {count} conversations", len(pool) * count)
        measured = measure(runner, cases, count, pool, roles, watch)
        leaders = ranked(measured)[:kept]
        beside = [near for one in leaders[:VARIED] for near in variants(one, runner.changes)]
        pool = tuple(dict.fromkeys([*kept_in, *leaders, *beside]))
        tried |= set(pool)
    base = declared[0] if declared else leaders[0]
    last = dict.fromkeys([*kept_in, *leaders, *variants(leaders[0], runner.changes), *floors(base)])
    found = _last(runner, cases, question, last, _roles(measured, leaders[0], role), watch)
    return replace(found, n_tried=len(tried | set(last)), left_out=choices.left_out)


def search_boundaries(
    runner: Runner, cases: Cases, question: Question, near: Candidate, watch: Watch
) -> Findings:
    """Try, on cases that have every boundary, each boundary in each slot of `near`, and as its target."""
    around = near.inputs
    role = _declared_target(question, cases)
    roles = tuple(dict.fromkeys([near.target, role, TRUE_TARGET]))
    beside = neighbours(around, question.n_layers) if question.try_all else ()
    every = tuple(dict.fromkeys([around, *question.declared, *beside]))

    def tried(inputs: Sequence[Inputs], against: tuple[TargetRole, ...]) -> Measured:
        return measure(runner, cases, len(cases), inputs, against, watch)

    watch.stage("every boundary", len(every) * len(cases))
    measured = tried(every, roles)
    if question.try_all:
        together = _together(ranked(measured), measured, around)
        watch.stage("boundaries together", (len(together) + 1) * len(cases))
        measured |= tried(together, roles)
        measured |= tried(ranked(measured)[:1], _targets(cases))
    best = _best(measured, (around, *question.declared))
    return Findings(measured, best, len(cases), len({one.inputs for one in measured}), cases.names)


def ranked(measured: Measured) -> tuple[Inputs, ...]:
    """Return the inputs by the best that each scores against any target, the first of equals first."""
    best: dict[Inputs, float] = {}
    for candidate, scores in measured.items():
        score = scores.learned.pooled
        best[candidate.inputs] = max(score, best.get(candidate.inputs, -1.0))
    return tuple(sorted(best, key=lambda inputs: -best[inputs]))


def _declared_target(question: Question, cases: Cases) -> TargetRole:
    """Return the target that is declared, or the true one where none is, or none that these cases have."""
    if question.trained is None:
        return TRUE_TARGET
    role = same_logits(question.trained.target)
    return role if role in _targets(cases) else TRUE_TARGET


def _targets(cases: Cases) -> tuple[TargetRole, ...]:
    """Return every target of these cases; the true one can always be had."""
    return tuple(dict.fromkeys([TRUE_TARGET, *targets(cases.names)]))


def _count(cases: Cases, wanted: float) -> int:
    """Return the first cases that hold so many counted pairs, all where they hold fewer."""
    pairs, count = 0, 0
    while count < len(cases) and pairs < wanted:
        pairs += int(cases[count].mask[1:].sum())
        count += 1
    return count


def _roles(measured: Measured, inputs: Inputs, declared: TargetRole) -> tuple[TargetRole, ...]:
    """Return the targets of the last round: the declared, the true one, and those that the best fits best."""
    mine = {one.target: scores.learned.pooled for one, scores in measured.items() if one.inputs == inputs}
    nearest = sorted(mine, key=lambda role: -mine[role])[:KEPT_TARGETS]
    return tuple(dict.fromkeys([declared, TRUE_TARGET, *nearest]))


def _last(
    runner: Runner,
    cases: Cases,
    question: Question,
    inputs: Iterable[Inputs],
    roles: tuple[TargetRole, ...],
    watch: Watch,
) -> Findings:
    # With one conversation there is no other.
    some = [one for one in inputs if one.source != "another sample" or len(cases) > 1]
    watch.stage(f"refining {len(some)} wirings on {len(cases)} conversations", len(some) * len(cases))
    measured = measure(runner, cases, len(cases), some, roles, watch, question.steps, loss_of=roles[0])
    return Findings(measured, _best(measured, question.declared), len(cases), len(some), cases.names)


def _best(measured: Measured, declared: Iterable[Inputs]) -> Candidate:
    """Return the candidate that scores best; of equals one with the longest chain, then a declared one."""
    wanted = set(declared)

    def merit(candidate: Candidate) -> tuple[float, float, bool, bool, bool]:
        scores = measured[candidate]
        return (
            scores.learned.pooled,
            scores.chain[-1].pooled,
            candidate.inputs in wanted,
            candidate.inputs.is_plain,
            candidate.target == TRUE_TARGET,
        )

    return max(measured, key=merit)


def _together(leaders: Sequence[Inputs], measured: Measured, around: Inputs) -> tuple[Inputs, ...]:
    """Return the two best boundaries of each slot in every combination: one slot shows part of a shift."""
    near = []
    for slot in range(len(around.fc)):
        alone = (one.fc[slot] for one in leaders if _differ_in(one, around) in ([], [slot]))
        near.append(tuple(name for name, _ in zip(dict.fromkeys(alone), range(2), strict=False)))
    known = {candidate.inputs for candidate in measured}
    return tuple(inputs for fc in product(*near) if (inputs := replace(around, fc=fc)) not in known)


def _differ_in(one: Inputs, other: Inputs) -> list[int] | None:
    """Return the slots in which two inputs differ, `None` where they differ in anything else."""
    if replace(one, fc=other.fc) != other:
        return None
    return [slot for slot, (mine, its) in enumerate(zip(one.fc, other.fc, strict=True)) if mine != its]
