"""From what a consumer would read to the boundaries that it will feed, with the reason for each step.

Pure: a consumer's name and version, the target's architecture and depth, and a draft's config go in. What is
not known is said, with what was assumed in its place; nothing is guessed in silence.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, PositiveInt

from schemas.boundary import name_of
from schemas.consumers.declared import Declared, IdRule, at_version, names
from schemas.consumers.rules import RULES, formula
from schemas.problem import Problem
from schemas.record import Record
from schemas.wiring import TargetRole, Wiring

MAX_IDS = 64


class Shape(Record):
    """What a resolver needs to know of a target: its model type and its depth."""

    model_type: str
    n_layers: PositiveInt


class Resolution(Record):
    """What a consumer will feed, and how that was found out.

    `wiring` is `None` where it cannot be known: then `problems` says why.
    """

    consumer: str
    version: str | None
    wiring: Wiring | None
    steps: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = Field(default=())


class _Way:
    """Steps, assumptions and problems on the way to a resolution."""

    def __init__(self, name: str, version: str | None) -> None:
        self.name = name
        self.version = version
        self.steps: list[str] = []
        self.assumptions: list[str] = []
        self.problems: list[Problem] = []

    def wrong(self, where: str, kind: str, message: str, repair: str | None = None) -> None:
        self.problems.append(Problem(where=where, kind=kind, message=message, repair=repair))

    def end(self, wiring: Wiring | None) -> Resolution:
        return Resolution(
            consumer=self.name,
            version=self.version,
            wiring=wiring if not self.problems else None,
            steps=tuple(self.steps),
            assumptions=tuple(self.assumptions),
            problems=tuple(self.problems),
        )


def resolve_server(
    name: str, version: str | None, shape: Shape, draft_config: Mapping[str, Any]
) -> Resolution:
    """Return what a server of this version will feed a draft with this config on this target."""
    way = _Way(name, version)
    consumer = _found(way, "server")
    if consumer is None:
        return way.end(None)
    rule = _rule(way, consumer, shape)
    found = _written_ids(way, consumer, draft_config)
    if rule is None or way.problems:
        return way.end(None)
    boundaries = _boundaries(way, consumer, rule, shape, found)
    if boundaries is None:
        return way.end(None)
    return way.end(_wiring(way, consumer, shape, [name_of(b, shape.n_layers) for b in boundaries], None))


def resolve_trainer(
    name: str,
    version: str | None,
    shape: Shape,
    tensors: Sequence[str] | None = None,
    ids: Sequence[int] | None = None,
) -> Resolution:
    """Return what a trainer of this version takes.

    `tensors` are those that it is handed in a list, in its order: it takes all but the last as input and the
    last as the target, whatever they are. `ids` are the capture ids that it is given; without both it uses
    its defaults.
    """
    way = _Way(name, version)
    consumer = _found(way, "trainer")
    if consumer is None:
        return way.end(None)
    if tensors is not None and consumer.reading in ("list", "slots"):
        return _of_list(way, consumer, shape, tensors)
    rule = _rule(way, consumer, shape)
    if ids is not None:
        way.steps.append(f"ids {list(ids)} as given")
        _check_ids(way, "ids", list(ids))
    if rule is None or way.problems:
        return way.end(None)
    boundaries = _boundaries(way, consumer, rule, shape, list(ids) if ids is not None else None)
    if boundaries is None:
        return way.end(None)
    fc = [name_of(boundary, shape.n_layers) for boundary in boundaries]
    return way.end(_wiring(way, consumer, shape, fc, consumer.target.tensor if consumer.target else None))


def _of_list(way: _Way, consumer: Declared, shape: Shape, tensors: Sequence[str]) -> Resolution:
    if len(tensors) < 2:
        way.wrong("tensors", "slots", f"expected at least 2 tensors in the list, got {len(tensors)}")
        return way.end(None)
    *fc, target = tensors
    way.steps.append(
        f"{consumer.title} takes all but the last of its list as the input ({', '.join(fc)}) "
        f"and the last as the target ({target}): names and order are not checked"
    )
    return way.end(_wiring(way, consumer, shape, fc, target))


def _found(way: _Way, kind: str) -> Declared | None:
    try:
        consumer, assumed = at_version(way.name, way.version)
    except KeyError:
        known = ", ".join(names("server" if kind == "server" else "trainer"))
        way.wrong(
            kind, "consumer", f"expected one of {known}, got {way.name!r}", "or declare its wiring in a file"
        )
        return None
    except ValueError as error:
        way.wrong(f"{kind} version", "version", str(error))
        return None
    if consumer.kind != kind:
        way.wrong(kind, "consumer", f"expected a {kind}, got {way.name}, a {consumer.kind}")
        return None
    if assumed is not None:
        way.assumptions.append(assumed)
    way.steps.append(
        f"{consumer.title} ({consumer.versions or 'all versions'}), as read in {consumer.source}"
    )
    return consumer


def _rule(way: _Way, consumer: Declared, shape: Shape) -> IdRule | None:
    rule = consumer.rule_for(shape.model_type)
    if rule is None:
        way.wrong(
            "architecture",
            "architecture",
            f"expected one that {consumer.title} is known for, got {shape.model_type!r}",
            "declare its rule, or give the boundaries themselves in a wiring file",
        )
    elif not consumer.names_model(shape.model_type):
        way.assumptions.append(
            f"{shape.model_type} is not declared for {consumer.title}: the rule of most models is assumed"
        )
    return rule


def _written_ids(way: _Way, consumer: Declared, draft_config: Mapping[str, Any]) -> list[int] | None:
    """Return the ids that the consumer reads in a draft's config; `None` where none are written."""
    read = {path: value for path in consumer.reads if (value := _at(draft_config, path)) is not None}
    for path in consumer.ignores:
        if (value := _at(draft_config, path)) is not None and not read:
            way.assumptions.append(
                f"{path} = {_short(value)} is written, but {consumer.title} does not read it there"
            )
    if not read:
        way.steps.append(f"no ids are written in {' or '.join(consumer.reads) or 'the config'}")
        return None
    path, value = next(iter(read.items()))
    for other, theirs in list(read.items())[1:]:
        if theirs != value:
            way.wrong(
                other,
                "ids",
                f"expected {_short(value)} as in {path}, got {_short(theirs)}",
                "write them once",
            )
    way.steps.append(f"ids {_short(value)} from {path}")
    return _check_ids(way, path, value)


def _check_ids(way: _Way, where: str, value: Any) -> list[int] | None:
    if not isinstance(value, list) or not value or len(value) > MAX_IDS:
        way.wrong(where, "ids", f"expected a list of 1 to {MAX_IDS} layer ids, got {_short(value)}")
        return None
    bad = [item for item in value if isinstance(item, bool) or not isinstance(item, int)]
    if bad:
        way.wrong(where, "ids", f"expected whole numbers, got {_short(bad)}")
        return None
    return list(value)


def _boundaries(
    way: _Way, consumer: Declared, rule: IdRule, shape: Shape, ids: list[int] | None
) -> list[int] | None:
    n_layers = shape.n_layers
    if ids is None:
        if consumer.default is None:
            way.wrong("ids", "ids", f"expected layer ids, got none: {consumer.title} has no default")
            return None
        boundaries = [formula(text, n_layers) for text in consumer.default]
        way.steps.append(
            f"so its default {list(consumer.default)} with n={n_layers}: boundaries {boundaries}"
        )
    else:
        mapped = RULES[rule.rule](ids, n_layers)
        boundaries = list(mapped.boundaries)
        way.steps.append(f"{shape.model_type}: {mapped.reason}: boundaries {boundaries} ({rule.source})")
    _check_boundaries(way, consumer, rule, n_layers, boundaries)
    if way.problems:
        return None
    return _ordered(way, consumer, boundaries)


def _check_boundaries(
    way: _Way, consumer: Declared, rule: IdRule, n_layers: int, boundaries: Sequence[int]
) -> None:
    outside = [b for b in boundaries if not 0 <= b <= n_layers]
    if outside:
        way.wrong("ids", "boundary", f"expected boundaries from 0 to {n_layers}, got {outside}")
    for boundary, possible, name in ((0, rule.embed, "embed"), (n_layers, rule.final, "final")):
        if boundary in boundaries and not possible:
            why = f": {rule.why_not}" if rule.why_not else ""
            way.wrong("ids", "boundary", f"{name} cannot be captured by {consumer.title} on this model{why}")
    if consumer.slots is not None and len(boundaries) != consumer.slots:
        message = f"expected exactly {consumer.slots} boundaries for {consumer.title}, got {len(boundaries)}"
        way.wrong("ids", "slots", message)


def _ordered(way: _Way, consumer: Declared, boundaries: list[int]) -> list[int] | None:
    ascending = sorted(set(boundaries))
    if boundaries == ascending or consumer.order == "kept":
        return boundaries
    if consumer.order == "must_ascend":
        way.wrong("ids", "order", f"expected ascending ids without doubles, got boundaries {boundaries}")
        return None
    way.steps.append(
        f"{consumer.title} captures in the order of depth, each layer once: {boundaries} becomes {ascending}"
    )
    return ascending


def _wiring(way: _Way, consumer: Declared, shape: Shape, fc: Sequence[str], target: str | None) -> Wiring:
    role = None
    if target is not None and consumer.target is not None:
        role = TargetRole(tensor=target, applies_norm=consumer.target.applies_norm)
    return Wiring(
        consumer=consumer.name,
        kind=consumer.kind,
        version=way.version,
        n_layers=shape.n_layers,
        fc=tuple(fc),
        target=role,
        token_shift=consumer.token_shift,
        mask_alignment=consumer.mask_alignment,
        position_start=consumer.position_start,
    )


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _short(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
