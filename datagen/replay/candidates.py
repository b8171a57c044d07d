"""Every plausible wiring of a draft: what it may have been trained on, each written out and each different.

Two halves, since they cost differently: `Inputs` are one forward pass of the draft, and a target is one pass
of the target's lm_head, whatever the inputs are compared with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Literal, NamedTuple

from schemas.boundary import FINAL, FINAL_NORMED, all_names
from schemas.wiring import TargetRole, expected_target

Source = Literal["own", "another sample", "zeros"]

MAX_CHOICES = 1500
"""Ordered choices of stored tensors; where there are more, some are left out, and that is said."""
TRUE_TARGET = TargetRole(tensor=FINAL, applies_norm=True)


class Change(NamedTuple):
    """A part of the draft contract that a server may run otherwise than training did.

    `name` is a norm flag, `rope` (which runs unscaled, with theta 10000) or `window`; `on` what it becomes.
    """

    name: str
    on: bool = False

    def __str__(self) -> str:
        return f"{self.name} {'on' if self.on else 'lost'}"

    @property
    def is_norm(self) -> bool:
        return self.name not in ("rope", "window")


@dataclass(frozen=True)
class Inputs:
    """What a draft is fed, and how it runs.

    `fc` has a tensor's name a slot. `moved` is by how many tokens states are early or late: with 1 the pair
    of token i+1 gets state i+1, one token ahead; with -1 state i-1, one token stale. `changes` are made to
    what the draft's config says.

    >>> print(Inputs(("layer2", "final"), moved=-1, changes=(Change("norm_before_fc"),)))
    layer2, final, one token stale, norm_before_fc lost
    """

    fc: tuple[str, ...]
    moved: int = 0
    changes: tuple[Change, ...] = ()
    source: Source = "own"

    def __str__(self) -> str:
        if self.source != "own":
            return "zeros" if self.source == "zeros" else f"another sample's {', '.join(self.fc)}"
        said = [*self.fc]
        if self.moved:
            said.append("one token ahead" if self.moved > 0 else "one token stale")
        return ", ".join([*said, *map(str, self.changes)])

    @property
    def is_plain(self) -> bool:
        """Whether only the choice and order of the tensors is asked about."""
        return self == Inputs(self.fc)


class Candidate(NamedTuple):
    """A wiring that the draft may have been trained on."""

    inputs: Inputs
    target: TargetRole

    @property
    def holds_its_answer(self) -> bool:
        """Whether the state that is to be foretold is fed: a token ahead, and among the inputs."""
        return self.inputs.moved > 0 and self.target.tensor in self.inputs.fc


def target_words(role: TargetRole) -> str:
    """Return a target as a person reads it.

    >>> target_words(TRUE_TARGET), target_words(TargetRole(tensor="final_normed", applies_norm=True))
    ('final', 'final_normed, normed twice')
    """
    role = same_logits(role)
    if role == TRUE_TARGET:
        return FINAL
    if role.tensor == FINAL_NORMED:
        return f"{FINAL_NORMED}, normed twice"
    return f"{role.tensor}, normed" if role.applies_norm else f"{role.tensor}, not normed"


def same_logits(role: TargetRole) -> TargetRole:
    """Return the one way to write targets that are the same logits: final, normed, is final_normed, as is."""
    return TRUE_TARGET if role.tensor == expected_target(role) else role


class Choices(NamedTuple):
    """Ordered choices of tensors, and what was left out of them, in words."""

    inputs: tuple[Inputs, ...]
    left_out: str | None


def ordered_choices(names: Sequence[str], n_slots: int, limit: int = MAX_CHOICES) -> Choices:
    """Return every ordered choice of `n_slots` of these tensors, one taken twice included.

    Where those are more than `limit`, without the ones that take a tensor twice; where these are too, only
    the ones in the order of `names`, and of them the first `limit`.
    """
    every = len(names) ** n_slots
    if every <= limit:
        return Choices(tuple(map(Inputs, product(names, repeat=n_slots))), None)
    distinct = _first(permutations(names, n_slots), limit + 1)
    if len(distinct) <= limit:
        said = f"of {every:,} ordered choices, those that take a tensor twice are not tried"
        return Choices(tuple(map(Inputs, distinct)), said)
    ascending = _first(combinations_with_replacement(names, n_slots), limit)
    said = f"of {every:,} ordered choices, {len(ascending):,} in the order of depth are tried"
    return Choices(tuple(map(Inputs, ascending)), said)


def _first(choices: Iterator[tuple[str, ...]], count: int) -> list[tuple[str, ...]]:
    return [choice for choice, _ in zip(choices, range(count), strict=False)]


def variants(inputs: Inputs, changes: Sequence[Change]) -> tuple[Inputs, ...]:
    """Return the same tensors otherwise: a token early or late, each of `changes`, lost norms together.

    The two norms that SGLang drops without a word cost together what neither does alone, so pairs are there.
    """
    norms = [change for change in changes if change.is_norm and not change.on]
    groups: list[tuple[Change, ...]] = [(change,) for change in changes]
    groups += combinations(norms, 2)
    plain = Inputs(inputs.fc)
    tried = [
        *(replace(plain, moved=moved) for moved in (-1, 1)),
        *(replace(plain, changes=group) for group in groups),
    ]
    return tuple(one for one in dict.fromkeys([plain, *tried]) if one != inputs)


def floors(inputs: Inputs) -> tuple[Inputs, ...]:
    """Return what says nothing of the sample: what a draft scores there it knows from the tokens alone."""
    return Inputs(inputs.fc, source="another sample"), Inputs(inputs.fc, source="zeros")


def neighbours(inputs: Inputs, n_layers: int) -> tuple[Inputs, ...]:
    """Return every boundary in each slot, one slot at a time, and all slots one boundary up or down."""
    every = all_names(n_layers)
    found = [
        replace(inputs, fc=(*inputs.fc[:slot], name, *inputs.fc[slot + 1 :]))
        for slot in range(len(inputs.fc))
        for name in every
    ]
    for step in (-1, 1):
        moved = off_by(inputs.fc, step, n_layers)
        if moved is not None:
            found.append(replace(inputs, fc=moved))
    return tuple(one for one in dict.fromkeys(found) if one != inputs)


def off_by(fc: Sequence[str], step: int, n_layers: int) -> tuple[str, ...] | None:
    """Return the same input so many boundaries deeper, `None` where the model ends before.

    >>> off_by(("embed", "layer2", "layer27"), 1, 30)
    ('layer1', 'layer3', 'layer28')
    >>> off_by(("embed", "layer2"), -1, 30) is None
    True
    """
    depths = all_names(n_layers)[:-1]
    places = [depths.index(name) + step if name in depths else -1 for name in fc]
    if not all(0 <= place < len(depths) for place in places):
        return None
    return tuple(depths[place] for place in places)


def targets(names: Sequence[str]) -> tuple[TargetRole, ...]:
    """Return every target that these tensors allow, the true one first: each normed, and each not."""
    roles = [TargetRole(tensor=name, applies_norm=norm) for name in names for norm in (True, False)]
    found = tuple(dict.fromkeys(same_logits(role) for role in roles))
    return tuple(sorted(found, key=lambda role: role != TRUE_TARGET))
