"""What a resolver answers: what a consumer will feed, with every step, assumption and problem on the way."""

import reprlib
from collections.abc import Sequence

from pydantic import PositiveInt

from schemas.boundary import place_of
from schemas.consumers.declared import AtVersion, Declared, at_version, names
from schemas.problem import Problem, Severity
from schemas.record import Record
from schemas.wiring import ConsumerKind, TargetRole, Wiring


class Shape(Record):
    """What a resolver needs to know of a target: its model type (transformers' word) and its depth."""

    model_type: str
    n_layers: PositiveInt


class Resolution(Record):
    """What a consumer will feed, and how that was found out.

    `wiring` is `None` where it cannot be known: then `problems` says why. Problems may also stand beside a
    wiring: something is written that the consumer does not read, and the wiring is what it does instead.
    """

    consumer: str
    version: str | None
    wiring: Wiring | None
    steps: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    by_default: bool = False
    """Whether the wiring is the consumer's default: no ids were read, whatever was written."""


class Way:
    """Steps, assumptions and problems on the way to a resolution."""

    def __init__(self, name: str, version: str | None) -> None:
        self.name = name
        self.version = version
        self.steps: list[str] = []
        self.assumptions: list[str] = []
        self.problems: list[Problem] = []
        self.by_default = False
        self.lost = False
        """Whether what will be fed cannot be known any more."""

    def wrong(self, where: str, kind: str, message: str, repair: str, slot: int | None = None) -> None:
        """Say what stands in the way of a wiring; `slot` is the one of the `fc` role that it is about."""
        self.lost = True
        self.beside(where, kind, message, repair, slot=slot)

    def beside(
        self,
        where: str,
        kind: str,
        message: str,
        repair: str,
        severity: Severity = "error",
        slot: int | None = None,
    ) -> None:
        """Say what is wrong, or worth knowing, beside a wiring that is known all the same."""
        self.problems.append(
            Problem(
                where=where,
                kind=kind,
                message=message,
                repair=repair,
                severity=severity,
                role=None if slot is None else "fc",
                slot=slot,
            )
        )

    def end(self, wiring: Wiring | None = None) -> Resolution:
        """Return what was found."""
        return Resolution(
            consumer=self.name,
            version=self.version,
            wiring=None if self.lost else wiring,
            steps=tuple(self.steps),
            assumptions=tuple(self.assumptions),
            problems=tuple(self.problems),
            by_default=self.by_default,
        )

    def find(self, kind: ConsumerKind, among: Sequence[Declared] | None = None) -> AtVersion | None:
        """Return the consumer of this way at its version, or say why there is none."""
        try:
            found = at_version(self.name, self.version, among)
        except KeyError:
            known = ", ".join(names(kind))
            message = f"expected one of {known}, got {short(self.name)}"
            repair = "write one of them"
            repair += ", or declare it in a wiring file (--trainer-wiring FILE)" if kind == "trainer" else ""
            self.wrong(kind, "consumer", message, repair)
            return None
        except ValueError as error:
            newest = at_version(self.name, None, among)
            known = f"{self.name}=={newest.release}" if newest.consumer.versions else self.name
            self.wrong(f"{kind} version", "version", str(error), f"write {known}, or a version like it")
            return None
        consumer = found.consumer
        if consumer.kind != kind:
            repair = f"name it with --{consumer.kind}, or write one of {', '.join(names(kind))}"
            self.wrong(kind, "consumer", f"expected a {kind}, got {consumer.name}, a {consumer.kind}", repair)
            return None
        if found.assumed is not None:
            self.assumptions.append(found.assumed)
        self.steps.append(f"{consumer.title} ({consumer.versions or 'all versions'}; {consumer.source})")
        return found

    def wiring(
        self, consumer: Declared, shape: Shape, fc: Sequence[str], target: str | None = None
    ) -> Wiring | None:
        """Return the wiring of these tensors, or say which of them the target does not have."""
        for slot, name in enumerate([*fc, *([target] if target is not None else [])]):
            place = place_of(name, shape.n_layers)
            if isinstance(place, Problem):
                is_target = slot == len(fc)
                where = "target" if is_target else f"fc[{slot}]"
                repair = place.repair or "name one that it has"
                self.wrong(where, place.kind, place.message, repair, None if is_target else slot)
        if self.lost:
            return None
        role = None
        if target is not None and consumer.target is not None:
            role = TargetRole(tensor=target, applies_norm=consumer.target.applies_norm)
        return Wiring(
            consumer=consumer.name,
            kind=consumer.kind,
            version=self.version,
            n_layers=shape.n_layers,
            fc=tuple(fc),
            target=role,
            token_shift=consumer.token_shift,
            mask_alignment=consumer.mask_alignment,
            position_start=consumer.position_start,
        )


def short(value: object, limit: int = 60) -> str:
    """Return a value as it may stand in a message: whatever it is, not too long, and soon."""
    try:
        text = _BRIEF.repr(value)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= limit else text[: limit - 3] + "..."


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxlist, _BRIEF.maxdict, _BRIEF.maxstring, _BRIEF.maxother = 3, 12, 4, 60, 60
