"""What a consumer is declared to do, at a range of versions: read from `systems/*.toml`, one file a system.

New consumers are added there. What a file cannot say (an id rule of a new kind) is a function in `rules`.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from schemas.consumers.rules import RULES, RuleName, formula
from schemas.consumers.versions import bounds_of, in_range, release_of
from schemas.errors import RecordError
from schemas.record import Record, validation_problems
from schemas.wiring import ConsumerKind, MaskAlignment, Shifter

Order = Literal["kept", "ascending", "must_ascend"]
"""What becomes of the order of the ids: `ascending` engines sort them and drop doubles in silence."""
Reading = Literal["list", "slots", "named"]
"""How a trainer finds its roles: `list` and `slots` take all but the last as `fc` and the last as target."""
ANY = "*"


class IdRule(Record):
    """The id rule of some model types, with the place where it was read."""

    models: tuple[str, ...] = Field(min_length=1)
    rule: RuleName
    source: str
    embed: bool = True
    """Whether boundary 0 can be captured there."""
    final: bool = True
    """Whether boundary L can be captured there, before the final norm."""
    why_not: str | None = None


class DeclaredTarget(Record):
    """The target role of a trainer: which tensor its format has there, and who runs the final norm."""

    tensor: Literal["final", "final_normed"]
    applies_norm: bool


class Declared(Record):
    """One consumer at a range of versions."""

    name: str
    kind: ConsumerKind
    versions: str = ""
    title: str
    source: str
    reads: tuple[str, ...] = ()
    """Where ids stand in a draft's config, dotted, the first that is there wins."""
    ignores: tuple[str, ...] = ()
    """Where ids may also stand, and are not read."""
    ids: tuple[IdRule, ...] = Field(min_length=1)
    default: tuple[str, ...] | None = None
    """Boundaries when no ids are written, as formulas of the number of layers; `None`: it has none."""
    order: Order = "kept"
    slots: int | None = None
    """How many `fc` slots it takes, where it takes only so many."""
    reading: Reading = "named"
    target: DeclaredTarget | None = None
    token_shift: Shifter | None = None
    mask_alignment: MaskAlignment | None = None
    position_start: int | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        bounds_of(self.versions)
        for text in self.default or ():
            formula(text, 61)
        if self.kind == "trainer" and self.target is None:
            raise ValueError("target: expected one, since a trainer has a target, got none")
        if any(rule.rule not in RULES for rule in self.ids):
            raise ValueError("ids: expected a known rule")
        return self

    def rule_for(self, model_type: str) -> IdRule | None:
        """Return the rule of a model type, that of any other model, or `None` where there is none."""
        by_model = {model: rule for rule in self.ids for model in rule.models}
        return by_model.get(model_type, by_model.get(ANY))

    def names_model(self, model_type: str) -> bool:
        """Say whether this model type is declared by name, not by the rule for any other."""
        return any(model_type in rule.models for rule in self.ids)


@cache
def declared() -> tuple[Declared, ...]:
    """Return every declared consumer, by system and then by version, the oldest first."""
    return tuple(
        consumer
        for file in sorted(files(__package__).joinpath("systems").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
        for consumer in read_declared(file.read_text(encoding="utf-8"), file.name)
    )


def read_declared(text: str, where: str) -> Iterator[Declared]:
    """Read the consumers of one file; raises `RecordError` with every problem."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecordError(f"{where} is not TOML: {error}") from error
    for entry in content.get("consumer", []):
        try:
            yield Declared.model_validate(entry)
        except ValidationError as error:
            name = entry.get("name", "a consumer") if isinstance(entry, dict) else "a consumer"
            raise RecordError(
                f"{where}: {name} is not declared rightly", validation_problems(error)
            ) from error


def names(kind: ConsumerKind | None = None) -> tuple[str, ...]:
    """Return the names of the declared consumers."""
    return tuple(dict.fromkeys(c.name for c in declared() if kind in (None, c.kind)))


def at_version(name: str, version: str | None) -> tuple[Declared, str | None]:
    """Return a consumer at a version, and what was assumed to choose it (`None`: nothing).

    Raises `KeyError` for a name that is not declared, `ValueError` for a version that is none.
    """
    known = [consumer for consumer in declared() if consumer.name == name]
    if not known:
        raise KeyError(name)
    if version is None:
        said = known[-1].versions or "all versions"
        return known[-1], f"no version of {name} given: the newest declared one ({said}) is assumed"
    release_of(version)
    for consumer in known:
        if in_range(version, consumer.versions):
            return consumer, None
    said = ", ".join(consumer.versions or "any" for consumer in known)
    return known[-1], f"{name} {version} is not declared ({said}): the newest declared one is assumed"
