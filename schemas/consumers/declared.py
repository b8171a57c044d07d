"""What a consumer is declared to do, at a range of versions: read from `systems/*.toml`, one file a system.

New consumers are added there. What a file cannot say (an id rule of a new kind) is a function in `rules`.
"""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from schemas.consumers.rules import RuleName, formula
from schemas.consumers.versions import bounds_of, in_range, is_before, newest, oldest, release_of
from schemas.errors import RecordError
from schemas.record import Record, validation_problems
from schemas.wiring import ConsumerKind, MaskAlignment, Shifter

Order = Literal["kept", "ascending", "must_ascend"]
"""What becomes of the order of the ids: `ascending` engines sort them and drop doubles in silence."""
Reading = Literal["list", "slots", "named"]
"""How a trainer finds its roles: `list` and `slots` take all but the last as `fc` and the last as target."""
Form = Literal["json", "yaml", "flag", "assignment"]
ANY = "*"


class IdRule(Record):
    """The id rule of some model types (transformers' `model_type`), with the place where it was read."""

    models: tuple[str, ...] = Field(min_length=1)
    versions: str = ""
    """The versions of the consumer in which this rule holds; a model may stand in several rules."""
    rule: RuleName
    source: str
    embed: bool | str = False
    """Whether boundary 0 can be captured there, or the versions in which it can."""
    final: bool | str = False
    """Whether boundary L can be captured there, before the final norm, or the versions in which it can."""
    embed_why: str | None = None
    final_why: str | None = None
    """Why the one or the other cannot be captured, where it cannot."""
    default: tuple[str, ...] | None = None
    """The default of these models, where it is not that of the consumer."""
    never: str | None = None
    """Why nothing that is captured there can be used."""

    def can(self, place: Literal["embed", "final"], version: str) -> bool:
        """Say whether `embed` or `final` can be captured at a version."""
        said = self.embed if place == "embed" else self.final
        return in_range(version, said) if isinstance(said, str) else said


class DeclaredTarget(Record):
    """The target role of a trainer: which tensor its format has there, and who runs the final norm."""

    tensor: Literal["final", "final_normed"]
    applies_norm: bool


class Writing(Record):
    """How ids are written for a consumer: in which file or command, in which form, under which name."""

    form: Form
    name: str
    """A dotted path, or a flag."""
    where: str
    separator: str = " "


class Declared(Record):
    """One consumer at a range of versions."""

    name: str
    kind: ConsumerKind
    versions: str = ""
    title: str
    source: str
    one_of: tuple[str, ...] = ()
    """The consumers that it may turn out to be: all are resolved, and must agree."""
    reads: tuple[str, ...] = ()
    """Where ids stand in a draft's config, dotted; the first that is there wins. Some trainers look too."""
    ignores: tuple[str, ...] = ()
    """Where ids may also stand, and are not read."""
    empty: Literal["absent", "no_layers"] = "absent"
    """What an empty list of ids means: as if none were written, or no layer at all."""
    malformed: Literal["default", "fails"] = "fails"
    """What follows from something that is no list, where ids should stand."""
    capture_flag: str | None = None
    """Where the config can turn capture off."""
    no_object: Literal["default", "fails", "fails_unless_empty"] = "default"
    """What follows from something that is no object, where the object with that flag should stand."""
    width: tuple[str, ...] = ()
    """Where a draft's config says how many tensors its input layer takes: a number, or ids to be counted."""
    ids: tuple[IdRule, ...] = ()
    engine: str | None = None
    """The server (`sglang==0.5.14`) whose id rules hold for this trainer, since it captures with it."""
    default: tuple[str, ...] | None = None
    """Boundaries when no ids are written, as formulas of the number of layers; `None`: it has none."""
    default_ids: tuple[str, ...] | None = None
    """Ids when none are given, for a consumer that hands its default on as if it had been written."""
    fc: tuple[Literal["final_normed"], ...] = ()
    """Its input, for a consumer that takes no layer but the last state after the norm."""
    takes_ids: bool = True
    ids_hold_target: bool = False
    """Whether the last of its ids is the target, not an input."""
    min_id: int | None = None
    distinct: bool = False
    """Whether it refuses an id that is given twice."""
    order: Order = "kept"
    slots: int | None = None
    """How many `fc` slots it takes, where it takes only so many."""
    reading: Reading = "named"
    target: DeclaredTarget | None = None
    token_shift: Shifter | None = None
    mask_alignment: MaskAlignment | None = None
    position_start: int | None = None
    writing: Writing | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for bounds in (self.versions, *(rule.versions for rule in self.ids)):
            bounds_of(bounds)
        for said in (said for rule in self.ids for said in (rule.embed, rule.final)):
            bounds_of(said if isinstance(said, str) else "")
        for text in (*(self.default or ()), *(self.default_ids or ())):
            formula(text, 61)
        if self.one_of:
            return self
        if self.kind == "trainer" and self.target is None:
            raise ValueError("target: expected one, since a trainer has a target, got none")
        if not self.ids and not self.fc and self.engine is None:
            raise ValueError("ids: expected id rules, or the engine whose rules hold, got none")
        return self

    def rule_for(self, model_type: str, version: str) -> IdRule | None:
        """Return the rule of a model type at a version, that of any other model, or `None` where none holds.

        A model that is named for other versions only has none: the consumer cannot capture from it then.
        """
        name = model_type if self.names_model(model_type) else ANY
        for rule in self.ids:
            if name in rule.models and in_range(version, rule.versions):
                return rule
        return None

    def names_model(self, model_type: str) -> bool:
        """Say whether this model type is declared by name, not by the rule for any other."""
        return any(model_type in rule.models for rule in self.ids)


class AtVersion(NamedTuple):
    """A consumer at a version: the release to ask its rules about, and what was assumed to choose it."""

    consumer: Declared
    release: str
    assumed: str | None


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
    """Read the consumers of one file; raises `RecordError` with every problem.

    Id rules at the top of a file (`[[ids]]`) are those of each of its consumers that has none of its own.
    """
    content = read_toml(text, where)
    shared = content.get("ids", [])
    entries = content.get("consumer", [])
    if not isinstance(entries, list):
        raise RecordError(f"{where}: expected [[consumer]] tables, got one [consumer]")
    for entry in entries:
        try:
            whole = entry
            if isinstance(entry, dict) and not entry.keys() & {"ids", "engine", "one_of"}:
                whole = {**entry, "ids": shared}
            yield Declared.model_validate(whole)
        except ValidationError as error:
            name = entry.get("name", "a consumer") if isinstance(entry, dict) else "a consumer"
            raise RecordError(
                f"{where}: {str(name)[:80]} is not declared rightly", validation_problems(error)
            ) from error
        except ValueError as error:
            raise RecordError(f"{where}: {error}") from error


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Read TOML; raises `RecordError` for anything else."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where} is not TOML: {str(error)[:200]}") from error


def names(kind: ConsumerKind | None = None) -> tuple[str, ...]:
    """Return the names of the declared consumers."""
    return tuple(dict.fromkeys(c.name for c in declared() if kind in (None, c.kind)))


def at_version(name: str, version: str | None, among: Sequence[Declared] | None = None) -> AtVersion:
    """Return a consumer at a version: where it is not declared, the nearest that is, and the assumption.

    Raises `KeyError` for a name that is not declared, `ValueError` for a version that is none.
    """
    known = [consumer for consumer in (declared() if among is None else among) if consumer.name == name]
    if not known:
        raise KeyError(name)
    last = known[-1]
    if version is None:
        assumed: str | None = (
            f"no version of {last.title} given: {newest(last.versions) or _said(last)} is assumed, the "
            "newest that is declared"
        )
        if not last.versions:
            assumed = None if among is not None else _unversioned(last)
        return AtVersion(last, newest(last.versions) or "0", assumed)
    release = ".".join(map(str, release_of(version)))
    for consumer in known:
        if in_range(release, consumer.versions):
            return AtVersion(consumer, release, _unversioned(consumer) if among is None else None)
    first = known[0]
    nearest, at = (
        (first, oldest(first.versions))
        if is_before(release, first.versions)
        else (last, newest(last.versions))
    )
    return AtVersion(
        nearest,
        at or release,
        f"{last.title} {release} is not declared ({', '.join(map(_said, known))}): "
        f"what holds for {_said(nearest)} is assumed",
    )


def members_at(consumer: Declared, version: str | None) -> tuple[str, ...]:
    """Return the consumers that one may turn out to be at a version: all of them where none is that old."""
    return tuple(name for name in consumer.one_of if holds_at(name, version)) or consumer.one_of


def holds_at(name: str, version: str | None) -> bool:
    """Say whether a consumer exists at a version, or might: it is not older than its oldest declared one."""
    known = [consumer for consumer in declared() if consumer.name == name]
    return bool(known) and (version is None or not is_before(version, known[0].versions))


def _unversioned(consumer: Declared) -> str | None:
    """Say that a consumer without releases is known at one place only."""
    if consumer.versions or consumer.one_of:
        return None
    return f"{consumer.title} is declared as read in {consumer.source}: it is assumed to be that"


def _said(consumer: Declared) -> str:
    return consumer.versions or "all versions"
