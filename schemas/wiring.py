"""A wiring: which tensors a consumer takes, in which order, for which role; always explicit.

A dataset never has an order; a consumer does. The `fc` role is the draft's input, one tensor a slot, its
order part of the trained weights; the `target` role is the state that the target's lm_head turns into the
logits to learn from. Two wirings agree when every slot holds the same tensor, never when only shapes do.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.boundary import EMBED, FINAL, FINAL_NORMED, NormState, place_of
from schemas.problem import Problem, Severity
from schemas.record import Record

ConsumerKind = Literal["trainer", "server"]
MaskAlignment = Literal["same", "next"]
"""How pair i (state i with token i+1, predicting token i+2) is masked: by mask[i], or by mask[i+1]."""
Shifter = Literal["consumer", "producer"]
"""Who moves tokens one to the left of states: the consumer, on unshifted samples, or who wrote them."""


class TargetRole(Record):
    """The target state as a consumer takes it.

    `tensor` is what it reads; `applies_norm` says whether it runs the final norm before the lm_head. `final`
    goes with a norm, `final_normed` without one; the other two ways are wrong, and look healthy in training.
    """

    tensor: str
    applies_norm: bool

    @property
    def needs(self) -> NormState:
        """The norm state that the consumer's own code asks of what it reads."""
        return "pre_norm" if self.applies_norm else "post_norm"


class Wiring(Record):
    """The explicit wiring of one consumer on one model of `n_layers` layers.

    >>> wiring = Wiring(consumer="mine", kind="server", n_layers=61, fc=("layer3", "layer31", "layer59"))
    >>> wiring.boundaries
    (3, 31, 59)
    """

    consumer: str
    kind: ConsumerKind
    version: str | None = None
    n_layers: PositiveInt
    fc: tuple[str, ...] = Field(min_length=1)
    target: TargetRole | None = None
    token_shift: Shifter | None = None
    mask_alignment: MaskAlignment | None = None
    position_start: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _names_mean_places(self) -> Self:
        names = [*self.fc, *([self.target.tensor] if self.target else [])]
        problems = [place for name in names if isinstance(place := place_of(name, self.n_layers), Problem)]
        if problems:
            raise ValueError("; ".join(map(str, problems)))
        return self

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The boundaries of the `fc` slots, in order."""
        places = (place_of(name, self.n_layers) for name in self.fc)
        return tuple(place.boundary for place in places if not isinstance(place, Problem))

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor that is read, each once, `fc` first."""
        names = [*self.fc, *([self.target.tensor] if self.target else [])]
        return tuple(dict.fromkeys(names))

    @property
    def title(self) -> str:
        """The consumer as a person names it."""
        return self.consumer + (f"=={self.version}" if self.version else "")


def target_problems(wiring: Wiring) -> Iterator[Problem]:
    """Yield what is wrong with a trainer's target: another boundary, or a norm too many or too few."""
    role = wiring.target
    if role is None:
        return
    expected = expected_target(role)
    if role.tensor == expected:
        return
    treatment = (
        f"{wiring.title} runs the final norm itself"
        if role.applies_norm
        else f"{wiring.title} feeds it to the lm_head without a norm"
    )
    what = {
        EMBED: "the embedding, which no layer has seen",
        FINAL: "the last state without its norm: logits of states that were never normed",
        FINAL_NORMED: "a state that is normed already: it is normed twice",
    }.get(role.tensor, _early(role.tensor, wiring.n_layers))
    yield Problem(
        where="target",
        kind="target",
        message=f"expected {expected} ({treatment}), got {role.tensor}: {what}",
        repair=f"feed {expected} as the target; capture it if the dataset lacks it",
        role="target",
        expected=expected,
        got=role.tensor,
    )


def expected_target(role: TargetRole) -> str:
    """Return the only tensor from which a consumer gets the target's own logits."""
    return FINAL if role.applies_norm else FINAL_NORMED


def _early(name: str, n_layers: int) -> str:
    depth = name.removeprefix("layer")
    return (
        f"the state after layer {depth} of {n_layers}, not the last one, so the draft learns tokens that the "
        "target does not say"
    )


def slot_problems(
    expected: Sequence[str],
    got: Sequence[str],
    expected_by: str,
    got_by: str,
    repair: str,
    severity: Severity = "error",
) -> Iterator[Problem]:
    """Yield how two inputs of a draft differ: once as a whole, then slot by slot with both tensors.

    Problems of the kind `slot` are the detail of the one before them; all share one repair.
    """
    if tuple(expected) == tuple(got):
        return
    what = (
        f"expected the draft's input to be {', '.join(expected)} ({expected_by}), "
        f"got {', '.join(got)} ({got_by})"
    )
    if len(expected) != len(got):
        kind, follows = "slots", f"{len(expected)} tensors, not {len(got)}"
    elif sorted(expected) == sorted(got):
        kind = "order"
        follows = "the same tensors in another order, but each slot has weights of its own"
    else:
        kind, follows = "input", "every shape is right, so nothing else will notice"
    yield Problem(
        where="fc",
        kind=kind,
        severity=severity,
        message=f"{what}: {follows}",
        repair=repair,
        role="fc",
        expected=", ".join(expected),
        got=", ".join(got),
    )
    for slot, (want, have) in enumerate(zip_longest(expected, got)):
        if want != have:
            wanted = f"{want} ({expected_by})" if want else f"no such slot ({expected_by})"
            given = f"{have} ({got_by})" if have else f"none ({got_by})"
            yield Problem(
                where=f"fc[{slot}]",
                kind="slot",
                severity=severity,
                message=f"expected {wanted}, got {given}",
                repair=repair,
                role="fc",
                slot=slot,
                expected=want,
                got=have,
            )


def target_differences(expected: Wiring, got: Wiring, expected_by: str, got_by: str) -> Iterator[Problem]:
    """Yield how two trainers' targets differ.

    Another tensor, or a norm too many or too few, is an error. The state before the norm, normed by the one,
    and the state after it, as it is, by the other, are the same logits by two ways: a note.
    """
    want, have = expected.target, got.target
    if want is None or want == have:
        return
    if have is None:
        yield Problem(
            where="target",
            kind="target",
            message=f"expected {_told(want)} ({expected_by}), got no target ({got_by})",
            repair=f"feed {want.tensor} as the target, or train with {expected.title}",
            role="target",
            expected=want.tensor,
        )
        return
    whole = all(role.tensor == expected_target(role) for role in (want, have))
    yield Problem(
        where="target",
        kind="target" if want.tensor != have.tensor else "norm",
        severity="note" if whole else "error",
        message=f"expected {_told(want)} ({expected_by}), got {_told(have)} ({got_by})"
        + (": the same logits by another way" if whole else ": other logits to learn from"),
        repair=None if whole else f"feed {want.tensor} to a trainer that takes it as {_told(want)}",
        role="target",
        expected=want.tensor,
        got=have.tensor,
    )


def _told(role: TargetRole) -> str:
    return f"{role.tensor}, " + ("which is normed then" if role.applies_norm else "as it is")


def shift_differences(expected: Wiring, got: Wiring, expected_by: str, got_by: str) -> Iterator[Problem]:
    """Yield where tokens would be moved twice, or never, by who writes and who reads samples."""
    want, have = expected.token_shift, got.token_shift
    if want is None or have is None or want == have:
        return
    twice = want == "producer"
    yield Problem(
        where="token_shift",
        kind="token_shift",
        message=f"expected tokens that the {want} moves one to the left ({expected_by}), "
        f"got a trainer that leaves it to the {have} ({got_by}): they are "
        + ("moved twice, state i with token i+2" if twice else "never moved, state i with token i"),
        repair="export samples unshifted"
        if twice
        else f"shift in the export, or train with {expected.title}",
    )


def difference_notes(trainer: Wiring, other: Wiring) -> Iterator[Problem]:
    """Yield legitimate differences between two wirings, and what follows from each."""
    masks = trainer.mask_alignment, other.mask_alignment
    if None not in masks and masks[0] != masks[1]:
        moved = "earlier" if masks[1] == "next" else "later"
        yield Problem(
            where="mask_alignment",
            kind="mask_alignment",
            severity="note",
            message=f"{trainer.title} masks a pair by {_MASKED[masks[0]]}, {other.title} by "
            f"{_MASKED[masks[1]]}: the trained tokens of each answer begin and end one token {moved}",
        )
    starts = trainer.position_start, other.position_start
    if None not in starts and starts[0] != starts[1]:
        yield Problem(
            where="position_start",
            kind="position_start",
            severity="note",
            message=f"{trainer.title} counts positions from {starts[0]}, {other.title} from {starts[1]}: "
            "rotary embeddings see distances only, so a shift of all positions changes nothing",
        )


_MASKED = {"same": "mask[i]", "next": "mask[i+1]", None: "no mask"}
