"""A wiring of one's own, in TOML: tensors named outright, or a consumer declared like those in `systems/`.

    [wiring]                                    [[consumer]]
    name = "mine"                               name = "mine"
    kind = "trainer"                            kind = "trainer"
    fc = ["layer3", "layer31", "layer59"]       title = "my trainer"
    mask_alignment = "next"                     source = "train.py"
    position_start = 0                          default_ids = ["1", "n//2-1", "n-4"]
                                                target = { tensor = "final", applies_norm = true }
    [wiring.target]                             [[consumer.ids]]
    tensor = "final"                            models = ["*"]
    applies_norm = true                         rule = "after_layer"
                                                source = "train.py"

A declared consumer may be told more in `[given]`: `version`, `draft_config`, and of a trainer `ids` and
`tensors`.
"""

from typing import Any

from pydantic import Field, StrictInt, ValidationError

from schemas.boundary import place_of
from schemas.consumers.declared import Declared, read_declared, read_toml
from schemas.consumers.resolution import Resolution, Shape, Way
from schemas.consumers.resolve import resolve_server, resolve_trainer
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.record import Record, validation_problems
from schemas.wiring import ConsumerKind, MaskAlignment, Shifter, TargetRole, Wiring

FORM = (
    'write it as [wiring] with name = "mine", kind = "trainer", fc = ["layer3", ...] and [wiring.target] '
    'with tensor = "final", applies_norm = true; or as [[consumer]], as in schemas/consumers/systems'
)
"""The repair of a file that is no wiring."""
MAX_TEXT = 1_000_000
"""Characters of a wiring file: more is no wiring."""


class OwnWiring(Record):
    """A wiring as its owner writes it: the tensors themselves."""

    name: str = Field(min_length=1)
    kind: ConsumerKind
    version: str | None = None
    fc: tuple[str, ...] = Field(min_length=1)
    target: TargetRole | None = None
    token_shift: Shifter | None = None
    mask_alignment: MaskAlignment | None = None
    position_start: StrictInt | None = Field(default=None, ge=0, le=1_000_000)


class Given(Record):
    """What a consumer of one's own is told."""

    version: str | None = None
    ids: tuple[StrictInt, ...] | None = None
    tensors: tuple[str, ...] | None = None
    draft_config: dict[str, Any] = Field(default_factory=dict)


def read_user_wiring(text: str, shape: Shape, where: str = "the wiring file") -> Resolution:
    """Return what a consumer of one's own feeds or takes; a wrong file comes back as problems."""
    way = Way(where, None)
    if len(text) > MAX_TEXT:
        way.wrong(where, "size", f"expected at most {MAX_TEXT} characters, got {len(text)}", FORM)
        return way.end()
    try:
        return _read(way, text, shape, where)
    except RecordError as error:
        return _refused(way, where, error.headline, error.problems)
    except ValueError:
        # Python itself refuses to write a number of thousands of digits into a message.
        return _refused(way, where, "expected a wiring, got a number that is too long to show", ())


def _read(way: Way, text: str, shape: Shape, where: str) -> Resolution:
    content = read_toml(text, where)
    try:
        if "wiring" in content:
            _check_names(way, content["wiring"], shape)
            return _outright(way, where, content, shape)
        return _resolved(way, where, content, shape, list(read_declared(text, where)))
    except ValidationError as error:
        raise RecordError(f"{where} is no wiring", validation_problems(error)) from error


def _outright(way: Way, where: str, content: dict[str, Any], shape: Shape) -> Resolution:
    other = sorted(content.keys() - {"wiring"})
    if other:
        message = f"expected [wiring] alone, got {', '.join(other)[:200]} beside it"
        way.wrong(
            where, "extra", message, "drop the one or the other: tensors are named, or resolved from ids"
        )
    own = OwnWiring.model_validate(content["wiring"])
    way.name, way.version = own.name, own.version
    if own.kind == "trainer" and own.target is None:
        message = "expected a target, since a trainer has one, got none"
        repair = 'add [wiring.target] with tensor = "final" and applies_norm = true, or what is the case'
        way.wrong("wiring.target", "missing", message, repair)
    if way.lost:
        return way.end()
    way.steps.append(f"{own.name}: its tensors as {where} names them")
    fields = own.model_dump(exclude={"name"})
    return way.end(Wiring(consumer=own.name, n_layers=shape.n_layers, **fields))


def _check_names(way: Way, wiring: object, shape: Shape) -> None:
    """Say which of the tensors that are named the target does not have, whatever else is wrong."""
    fc = wiring.get("fc") if isinstance(wiring, dict) else None
    target = wiring.get("target") if isinstance(wiring, dict) else None
    named = [(f"wiring.fc[{slot}]", name) for slot, name in enumerate(fc if isinstance(fc, list) else [])]
    named += [("wiring.target.tensor", target.get("tensor"))] if isinstance(target, dict) else []
    for where, name in named:
        place = place_of(name, shape.n_layers) if isinstance(name, str) else None
        if isinstance(place, Problem):
            way.wrong(where, place.kind, place.message, place.repair or FORM)


def _resolved(
    way: Way, where: str, content: dict[str, Any], shape: Shape, consumers: list[Declared]
) -> Resolution:
    if not consumers:
        way.wrong(where, "missing", "expected [wiring] or [[consumer]], got neither", FORM)
        return way.end()
    names = sorted({consumer.name for consumer in consumers})
    if len(names) > 1:
        message = f"expected one consumer, at its versions, got {', '.join(names)[:200]}"
        way.wrong(where, "consumer", message, "write a file for each")
        return way.end()
    given = Given.model_validate(content.get("given", {}))
    name, version = names[0], given.version
    if consumers[0].kind == "server":
        return resolve_server(name, version, shape, given.draft_config, among=consumers)
    return resolve_trainer(
        name, version, shape, given.tensors, given.ids, among=consumers, draft_config=given.draft_config
    )


def _refused(way: Way, where: str, headline: str, problems: tuple[Problem, ...]) -> Resolution:
    way.lost = True
    said = headline.removeprefix(where).lstrip(": ")
    for problem in problems or (Problem(where=where, kind="toml", message=said, repair=FORM),):
        way.problems.append(problem.model_copy(update={"repair": problem.repair or FORM}))
    return way.end()
