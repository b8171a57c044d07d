"""Many candidates, few of them good: all are tried on a few conversations, and the best on all of them.

Inputs are ranked by the best that they score against any target, since a draft may have been trained on a
wrong one; once the best are known, they say which (`leaning`), and only that counts. What was declared stays
in to the end, whatever it scores, and so do its variants.
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
from datagen.replay.leaning import Leaning, leaning
from datagen.replay.measuring import Cases, Measured, Runner, Scores, Watch, measure
from datagen.replay.score import Interval, bootstrap_over
from schemas.wiring import TargetRole

MIN_PAIRS = 500
"""Counted pairs of a round: right against swapped is 0.357 against 0.333, so few would mislead."""
ROUNDS = ((0.3, 48), (1.0, 16), (2.0, 8))
"""Of each round before the last: its share of those pairs, and how many wirings go on beside the declared.

A wiring counts once, however many norms are lost in how many ways: all those of one would crowd out the next.
"""
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
    """Against `role`."""
    n_cases: int
    n_tried: int
    """Different inputs that were tried in any round."""
    names: tuple[str, ...] = ()
    """The tensors that could be chosen."""
    left_out: str | None = None
    only_declared: bool = False
    """Whether nothing but what is declared was tried, so that the best of it need not be what was trained."""
    leaning: Leaning | None = None
    """Which target the best inputs propose tokens like; `None` where only the declared was tried."""
    role: TargetRole = TRUE_TARGET
    """The target that candidates are compared against: the declared one, or what `leaning` says instead."""

    @property
    def scores(self) -> Scores:
        """Those of the best."""
        return self.measured[self.best]

    def compared(self, one: Candidate, other: Candidate, comparisons: int | None = None) -> Interval:
        """Return by how much `one` beats `other`: at step 1, or where they are equal there, in the chain.

        The chain tells what step 1 cannot: a norm of what is fed back. The interval allows for all that were
        tried, since the best of many is flattered, or for so many `comparisons`.
        """
        bootstrap = bootstrap_over(self.n_cases)
        mine, its = self.measured[one], self.measured[other]
        among = self.n_tried if comparisons is None else comparisons
        step = bootstrap.difference(mine.learned, its.learned, among)
        same = (mine.learned.right == its.learned.right).all()
        return bootstrap.difference(mine.chain[-1], its.chain[-1], among) if same else step

    def merit(self, candidate: Candidate) -> tuple[float, float]:
        """Return what candidates are ranked by: the accuracy at step 1, and that of the longest chain."""
        scores = self.measured[candidate]
        return scores.learned.pooled, scores.chain[-1].pooled

    @property
    def easiest(self) -> Candidate:
        """The candidate that scores best against any target; the best where none scores better."""
        return max(self.measured, key=lambda one: (self.measured[one].learned.pooled, one == self.best))

    def rivals(self) -> tuple[Candidate, ...]:
        """Return what is too close to the best to be told from it, against one target, the nearest first."""
        near = [
            one
            for one in self.measured
            if one.target == self.role
            and one != self.best
            and not self.compared(self.best, one).is_above_zero
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
        leaders = leading(measured, kept)
        beside = [near for one in leaders[:VARIED] for near in variants(one, runner.changes)]
        pool = tuple(dict.fromkeys([*kept_in, *leaders, *beside, *map(_as_config_says, leaders)]))
        tried |= set(pool)
    leans = _lean(runner, cases, _leaning_inputs(measured, leaders[0], count), roles, watch)
    decided = leans.decide(role)
    leaders = leading(_against(measured, decided), kept)
    base = declared[0] if declared else leaders[0]
    beside = [*variants(leaders[0], runner.changes), *map(_as_config_says, leaders)]
    last = dict.fromkeys([*kept_in, *leaders, *beside, *floors(base)])
    against = dict.fromkeys([decided, *_roles(measured, leaders[0], role)])
    found = _last(runner, cases, question, last, tuple(against), watch)
    return replace(found, n_tried=len(tried | set(last)), left_out=choices.left_out, leaning=leans)


def search_boundaries(
    runner: Runner, cases: Cases, question: Question, found: Findings, watch: Watch
) -> Findings:
    """Try, on cases that have every boundary, each of them in each slot of what was found, and as its target.

    What takes a boundary that these cases lack is left out. Of targets only one that `found` could not try
    overrules it: it was tried on more conversations.
    """
    around = replace(found.best.inputs, source="own")
    role = _declared_target(question, cases)
    expected = found.role if role in targets(found.names) else role
    leans, decided = None, expected
    if question.try_all:
        leans = _lean(runner, cases, around, _targets(cases), watch)
        nearest = leans.decide(expected)
        decided = expected if nearest in targets(found.names) else nearest
    roles = tuple(dict.fromkeys([decided, found.role, role, TRUE_TARGET]))
    beside = neighbours(around, question.n_layers) if question.try_all else ()
    wanted = dict.fromkeys([around, *question.declared, *beside])
    every = tuple(one for one in wanted if set(one.fc) <= set(cases.names))

    def tried(inputs: Sequence[Inputs]) -> Measured:
        return measure(runner, cases, len(cases), inputs, roles, watch)

    watch.stage("every boundary", len(every) * len(cases))
    measured = tried(every)
    if question.try_all:
        together = _together(ranked(_against(measured, decided)), measured, around)
        watch.stage("boundaries together", len(together) * len(cases))
        measured |= tried(together)
    best = _best(_against(measured, decided), (around, *question.declared))
    n_tried = len({one.inputs for one in measured})
    return Findings(measured, best, len(cases), n_tried, cases.names, leaning=leans, role=decided)


def _against(measured: Measured, role: TargetRole) -> Measured:
    return {one: scores for one, scores in measured.items() if one.target == role}


def _leaning_inputs(measured: Measured, leader: Inputs, n_cases: int) -> Inputs:
    """Return the leader as its config runs it, unless that is worse beyond doubt.

    A norm more or less makes a draft surer or less sure, and so moves what it proposes.
    """
    plain = _as_config_says(leader)
    mine, its = (_best_of(measured, inputs) for inputs in (leader, plain))
    if mine is None or its is None:
        return leader
    apart = bootstrap_over(n_cases).difference(mine.learned, its.learned, len(measured))
    return leader if apart.is_above_zero else plain


def _best_of(measured: Measured, inputs: Inputs) -> Scores | None:
    """Return what inputs score against the target that they fit best, `None` where they were not tried."""
    mine = [scores for one, scores in measured.items() if one.inputs == inputs]
    return max(mine, key=lambda scores: scores.learned.pooled, default=None)


def _lean(runner: Runner, cases: Cases, inputs: Inputs, roles: Sequence[TargetRole], watch: Watch) -> Leaning:
    watch.stage(f"what is proposed, against {len(roles)} targets", len(cases))
    spreads = []
    for number in range(len(cases)):
        spreads.append(runner.spread(cases[number], inputs, roles))
        watch.passed()
    return leaning(inputs, spreads)


def ranked(measured: Measured) -> tuple[Inputs, ...]:
    """Return the inputs by the best that each scores against any target, the first of equals first.

    But for a target that is itself among the inputs: to repeat it is nothing that was learned.
    """
    best: dict[Inputs, float] = {}
    for candidate, scores in measured.items():
        score = -1.0 if candidate.holds_its_answer else scores.learned.pooled
        best[candidate.inputs] = max(score, best.get(candidate.inputs, -1.0))
    return tuple(sorted(best, key=lambda inputs: -best[inputs]))


def leading(measured: Measured, kept: int) -> tuple[Inputs, ...]:
    """Return the best inputs of each of the `kept` best wirings, those that differ in more than norms."""
    best: dict[Inputs, Inputs] = {}
    for inputs in ranked(measured):
        best.setdefault(_as_config_says(inputs), inputs)
    return tuple(best.values())[:kept]


def _as_config_says(inputs: Inputs) -> Inputs:
    return replace(inputs, changes=())


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
    """Measure what is left on all cases, and find the best against the first of `roles`."""
    # With one conversation there is no other.
    some = [one for one in inputs if one.source != "another sample" or len(cases) > 1]
    watch.stage(f"refining {len(some)} wirings on {len(cases)} conversations", len(some) * len(cases))
    measured = measure(runner, cases, len(cases), some, roles, watch, question.steps, loss_of=roles[0])
    best = _best(_against(measured, roles[0]), question.declared)
    return Findings(measured, best, len(cases), len(some), cases.names, role=roles[0])


def _best(measured: Measured, declared: Iterable[Inputs]) -> Candidate:
    """Return the candidate that scores best; of equals one with the longest chain, then a declared one."""
    wanted = set(declared)

    def merit(candidate: Candidate) -> tuple[float, float, bool, bool]:
        scores = measured[candidate]
        return (
            scores.learned.pooled,
            scores.chain[-1].pooled,
            candidate.inputs in wanted,
            candidate.inputs.is_plain,
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
