"""A wiring: which tensors a consumer takes, in which order, for which role; always explicit.

A dataset never has an order; a consumer does. The `fc` role is the draft's input, one tensor a slot, its
order part of the trained weights; the `target` role is the state that the target's lm_head turns into the
logits to learn from. Two wirings agree when every slot holds the same tensor, never when only shapes do.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from schemas.boundary import FINAL, FINAL_NORMED, NormState, place_of
from schemas.problem import Problem
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
    expected = FINAL if role.applies_norm else FINAL_NORMED
    if role.tensor == expected:
        return
    treatment = (
        f"{wiring.title} runs the final norm itself"
        if role.applies_norm
        else f"{wiring.title} feeds it to the lm_head without a norm"
    )
    what = {
        FINAL: "the last state without its norm: logits of states that were never normed",
        FINAL_NORMED: "a state that is normed already: it is normed twice",
    }.get(role.tensor, f"the state after layer {role.tensor.removeprefix('layer')}, not the last one")
    yield Problem(
        where="target",
        kind="target",
        message=f"expected {expected} ({treatment}), got {role.tensor}: {what}",
        repair=f"feed {expected} as the target; capture it if the dataset lacks it",
    )


def slot_problems(
    expected: Sequence[str], got: Sequence[str], expected_by: str, got_by: str
) -> Iterator[Problem]:
    """Yield every slot of the draft's input in which two wirings differ, by its number and both tensors."""
    if tuple(expected) == tuple(got):
        return
    if len(expected) != len(got):
        yield Problem(
            where="fc",
            kind="slots",
            message=f"expected {len(expected)} tensors ({', '.join(expected)}; {expected_by}), "
            f"got {len(got)} ({', '.join(got)}; {got_by})",
        )
    elif sorted(expected) == sorted(got):
        yield Problem(
            where="fc",
            kind="order",
            message=f"expected the order {', '.join(expected)} ({expected_by}), got {', '.join(got)} "
            f"({got_by}); the same tensors, but each slot has weights of its own",
        )
    for slot, (want, have) in enumerate(zip(expected, got, strict=False)):
        if want != have:
            yield Problem(
                where=f"fc[{slot}]",
                kind="slot",
                message=f"expected {want} ({expected_by}), got {have} ({got_by})",
            )


def difference_notes(trainer: Wiring, server: Wiring) -> Iterator[Problem]:
    """Yield legitimate differences between two wirings, and what follows from each."""
    starts = trainer.position_start, server.position_start
    if None not in starts and starts[0] != starts[1]:
        yield Problem(
            where="position_start",
            kind="position_start",
            severity="note",
            message=f"{trainer.title} counts positions from {starts[0]}, {server.title} from {starts[1]}: "
            "rotary embeddings see distances only, so a shift of all positions changes nothing",
        )
