"""The way back: what to write for a consumer so that exactly these boundaries are fed, in this order.

Every answer is proven by resolving it: what is written is read again as the consumer would read it, and only
what gives the same boundaries is returned. Where nothing does, the reason is.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.boundary import name_of
from schemas.consumers.declared import AtVersion, Declared, Writing, at_version, members_at
from schemas.consumers.mapping import default_boundaries, rule_of, tensor_names
from schemas.consumers.reading import MAX_IDS
from schemas.consumers.resolution import Resolution, Shape, Way, short
from schemas.consumers.resolve import resolve_server, resolve_trainer
from schemas.consumers.rules import candidates
from schemas.problem import Problem
from schemas.record import Record
from schemas.wiring import ConsumerKind

_OTHERWISE = "take other boundaries, another version, or another consumer"
NOTHING = "nothing to write: these boundaries are its default"
WIDTH_KEY = "num_aux_hidden_states"


class Written(Record):
    """What to write for one consumer, and where; or the problems that stand in the way.

    `ids` and `snippet` are `None` where nothing can be written. That is well only where `problems` holds no
    error: then the boundaries are the consumer's default, and `where` says so.
    """

    consumer: str
    version: str | None
    kind: ConsumerKind | None
    ids: tuple[int, ...] | None = None
    snippet: str | None = None
    where: str = ""
    steps: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def what_to_write(
    name: str, version: str | None, shape: Shape, boundaries: Sequence[int], engine: str | None = None
) -> Written:
    """Return the ids and the snippet that make a consumer feed exactly these boundaries, in this order.

    Never raises: an unknown name, a boundary that the target does not have, an order that the consumer does
    not keep come back as problems. `engine` is what a trainer captures with, as in `resolve_trainer`.
    """
    try:
        kind: ConsumerKind | None = at_version(name, None).consumer.kind
    except KeyError:
        kind = None
    way = Way(name, version)
    found = way.find(kind or "server")
    if found is not None and kind == "trainer" and found.consumer.one_of:
        way.wrong(
            "trainer",
            "undecided",
            f"expected one of {', '.join(found.consumer.one_of)}, got {name}: {found.consumer.source}",
            "name the one that is meant",
        )
    elif (
        found is not None and _are_boundaries(way, boundaries, shape) and _keeps_order(way, found, boundaries)
    ):
        tried = [
            _tried(attempt, boundaries, shape) for attempt in _attempts(found, way, shape, boundaries, engine)
        ]
        right = next((written for written in tried if not _errors(written.problems)), None)
        if right is not None:
            return right
        way.problems += [problem for problem in _reasons(tried) if problem not in way.problems]
        if not _errors(way.problems):
            _no_ids(way, found.consumer, shape, boundaries)
    return Written(
        consumer=name,
        version=version,
        kind=kind,
        steps=tuple(way.steps),
        assumptions=tuple(way.assumptions),
        problems=tuple(way.problems),
    )


def plain_ids(name: str, version: str | None, shape: Shape, boundaries: Sequence[int]) -> tuple[int, ...]:
    """Return the ids, in a trainer's own numbers, that mean these boundaries by its rule.

    Whether it takes them is for resolving them to say. Where no ids mean them, or no trainer is of that name,
    the boundaries themselves.

    >>> llama = Shape(model_type="llama", n_layers=32)
    >>> plain_ids("automodel", None, llama, (2, 16, 29)), plain_ids("speculators", "0.9.0", llama, (2, 16))
    ((1, 15, 28), (2, 16))
    """
    way = Way(name, version)
    try:
        found = at_version(name, version)
    except (KeyError, ValueError):
        return tuple(boundaries)
    for member in _members(found, way):
        for ids in _ids(member, way, shape, boundaries, None):
            return ids
    return tuple(boundaries)


class _Attempt:
    """Something that may be written: ids in a form, or nothing at all."""

    def __init__(self, resolution: Resolution, found: AtVersion, writing: Writing | None) -> None:
        self.resolution = resolution
        self.kind = found.consumer.kind
        self.writing = writing
        self.ids: tuple[int, ...] | None = None
        self.snippet: str | None = None


def _attempts(
    found: AtVersion, way: Way, shape: Shape, boundaries: Sequence[int], engine: str | None
) -> Iterator[_Attempt]:
    for member in _members(found, way):
        consumer = member.consumer
        if consumer.writing is not None and consumer.takes_ids:
            for ids in _ids(member, way, shape, boundaries, engine):
                snippet = _snippet(consumer, ids)
                attempt = _Attempt(
                    _resolved(found, way, shape, ids, snippet, engine), found, consumer.writing
                )
                attempt.ids, attempt.snippet = ids, snippet
                yield attempt
        yield _Attempt(_resolved(found, way, shape, None, "{}", engine), found, None)


def _resolved(
    found: AtVersion, way: Way, shape: Shape, ids: Sequence[int] | None, snippet: str, engine: str | None
) -> Resolution:
    """Read what was written the way the consumer does."""
    if found.consumer.kind == "trainer" and not found.consumer.reads:
        return resolve_trainer(way.name, way.version, shape, ids=ids, engine=engine)
    config: Mapping[str, Any] = json.loads(snippet)
    if found.consumer.kind == "trainer":
        return resolve_trainer(way.name, way.version, shape, engine=engine, draft_config=config)
    return resolve_server(way.name, way.version, shape, config)


def _members(found: AtVersion, way: Way) -> Iterator[AtVersion]:
    if not found.consumer.one_of:
        yield found
    for name in members_at(found.consumer, way.version):
        yield at_version(name, way.version)


def _ids(
    found: AtVersion, way: Way, shape: Shape, boundaries: Sequence[int], engine: str | None
) -> Iterator[tuple[int, ...]]:
    """Yield lists of ids that may give these boundaries, the plain ones first."""
    held = rule_of(Way(way.name, way.version), found, shape, engine)
    if held is None:
        return
    asked = [*boundaries, shape.n_layers] if found.consumer.ids_hold_target else list(boundaries)
    yield from candidates(held.rule.rule, asked, shape.n_layers)
    if found.consumer.order == "ascending" and len(asked) > 1:
        yield from candidates(held.rule.rule, [*asked[1:], asked[0]], shape.n_layers)


def _tried(attempt: _Attempt, boundaries: Sequence[int], shape: Shape) -> Written:
    resolution = attempt.resolution
    problems = list(resolution.problems)
    fed = resolution.wiring.fc if resolution.wiring else ()
    if resolution.wiring is not None and fed != tuple(tensor_names(boundaries, shape.n_layers)):
        wanted = ", ".join(tensor_names(boundaries, shape.n_layers))
        problems.append(
            Problem(
                where="ids",
                kind="ids",
                message=f"expected {wanted} to be fed, got {', '.join(fed)}",
                repair="write other ids",
            )
        )
    return Written(
        consumer=resolution.consumer,
        version=resolution.version,
        kind=attempt.kind,
        ids=attempt.ids,
        snippet=attempt.snippet,
        where=attempt.writing.where if attempt.writing else NOTHING,
        steps=resolution.steps,
        assumptions=resolution.assumptions,
        problems=tuple(problems),
    )


def _reasons(tried: Sequence[Written]) -> list[Problem]:
    """Return why none of these attempts is right: of the plainest that was written, if any was."""
    for written in [w for w in tried if w.ids is not None] or tried:
        errors = [p for p in _errors(written.problems) if p.kind != "ids" or "to be fed" not in p.message]
        if errors:
            return [_repaired(error) for error in errors]
    return []


def _repaired(error: Problem) -> Problem:
    """Replace the repair of a config by that of a wish: what was tried are all ids that there are."""
    if error.kind not in ("boundary", "ids", "slots", "order"):
        return error
    return error.model_copy(update={"repair": _OTHERWISE})


def _no_ids(way: Way, consumer: Declared, shape: Shape, boundaries: Sequence[int]) -> None:
    names = ", ".join(tensor_names(boundaries, shape.n_layers))
    if consumer.takes_ids and (consumer.writing is not None or consumer.one_of):
        message = f"expected ids that make {consumer.title} feed {names}, got none that mean these boundaries"
    else:
        default = default_boundaries(consumer, None, shape.n_layers) or []
        usual = [name_of(b, shape.n_layers) if 0 <= b <= shape.n_layers else f"boundary {b}" for b in default]
        message = (
            f"expected {', '.join(usual) or 'its own layers'} for {consumer.title}, which reads no ids, "
        )
        message += f"got {names}"
    way.wrong("ids", "ids", message, _OTHERWISE)


def _are_boundaries(way: Way, boundaries: Sequence[int], shape: Shape) -> bool:
    if not 1 <= len(boundaries) <= MAX_IDS:
        message = f"expected 1 to {MAX_IDS} boundaries, got {len(boundaries)}"
        way.wrong("boundaries", "boundary", message, "write one for each slot of the draft's input")
        return False
    bad = [
        b for b in boundaries if isinstance(b, bool) or not isinstance(b, int) or not 0 <= b <= shape.n_layers
    ]
    if bad:
        message = f"expected boundaries from 0 to {shape.n_layers}, got {short(bad)}"
        repair = f"0 is embed, {shape.n_layers} is final: write numbers between them"
        way.wrong("boundaries", "boundary", message, repair)
    return not bad


def _keeps_order(way: Way, found: AtVersion, boundaries: Sequence[int]) -> bool:
    fed = sorted(set(boundaries))
    orders = {member.consumer.order for member in _members(found, way)}
    if list(boundaries) == fed or orders == {"kept"}:
        return True
    what = (
        "refuses any other order"
        if orders == {"must_ascend"}
        else "captures in the order of depth, each once"
    )
    way.wrong(
        "boundaries",
        "order",
        f"expected the order {fed} for {found.consumer.title}, which {what}, got {list(boundaries)}",
        "train on the ascending order: each slot has weights of its own",
    )
    return False


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _snippet(consumer: Declared, ids: Sequence[int]) -> str:
    writing = consumer.writing
    if writing is None:
        return "{}"
    if writing.form == "json":
        config: dict[str, Any] = _nested(writing.name, list(ids))
        if WIDTH_KEY in consumer.width and len(ids) != consumer.slots:
            config[WIDTH_KEY] = len(ids)
        return json.dumps(config)
    if writing.form == "flag":
        return f"{writing.name} {writing.separator.join(map(str, ids))}"
    if writing.form == "assignment":
        return f"{writing.name} = {list(ids)}"
    *parents, key = writing.name.split(".")
    lines = [f"{'  ' * depth}{parent}:" for depth, parent in enumerate(parents)]
    return "\n".join([*lines, f"{'  ' * len(parents)}{key}: {list(ids)}"])


def _nested(path: str, value: object) -> dict[str, Any]:
    head, _, tail = path.partition(".")
    return {head: _nested(tail, value) if tail else value}
