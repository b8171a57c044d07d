"""From what a consumer would read to the boundaries that it will feed, with the reason for each step.

Pure: a consumer's name and version, the target's architecture and depth, and a draft's config go in. What is
not known is said, with what was assumed in its place; nothing is guessed in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.boundary import FINAL_NORMED
from schemas.consumers.declared import AtVersion, Declared, at_version, declared, members_at, names
from schemas.consumers.mapping import boundaries_of, check_width, default_boundaries, rule_of, tensor_names
from schemas.consumers.reading import captures, checked_ids, width_of, written_ids
from schemas.consumers.resolution import Resolution, Shape, Way, short
from schemas.consumers.rules import formula, ids_for
from schemas.wiring import Wiring

__all__ = [
    "Resolution",
    "Shape",
    "at_version",
    "declared",
    "ids_for",
    "names",
    "resolve_server",
    "resolve_trainer",
]


def resolve_server(
    name: str,
    version: str | None,
    shape: Shape,
    draft_config: Mapping[str, Any],
    among: Sequence[Declared] | None = None,
) -> Resolution:
    """Return what a server of this version will feed a draft with this config on this target.

    `among` are consumers of one's own to look the name up in, instead of the declared ones.
    """
    way = Way(name, version)
    found = way.find("server", among)
    if found is None:
        return way.end()
    if not isinstance(draft_config, Mapping):
        message = f"expected an object, got {short(draft_config)}"
        way.wrong(
            "draft config", "json", message, "give the config.json that lies beside the draft's weights"
        )
        return way.end()
    if found.consumer.one_of:
        return _one_of(way, found, lambda member: resolve_server(member, version, shape, draft_config))
    return way.end(_served(way, found, shape, draft_config))


def resolve_trainer(
    name: str,
    version: str | None,
    shape: Shape,
    tensors: Sequence[str] | None = None,
    ids: Sequence[int] | None = None,
    engine: str | None = None,
    among: Sequence[Declared] | None = None,
    draft_config: Mapping[str, Any] | None = None,
) -> Resolution:
    """Return what a trainer of this version takes.

    `tensors` are those that it is handed in a list, in its order: it takes all but the last as input and the
    last as the target, whatever they are. `ids` are the capture ids that it is given; without both it takes
    those of the `draft_config`, if it is one that looks there, or its defaults. `engine` (`sglang==0.5.23`)
    is what it captures with, where that is not the declared one.
    """
    way = Way(name, version)
    found = way.find("trainer", among)
    if found is None:
        return way.end()
    if found.consumer.one_of:

        def resolve(member: str) -> Resolution:
            captures_with = engine if at_version(member, None).consumer.engine else None
            return resolve_trainer(
                member, version, shape, tensors, ids, captures_with, draft_config=draft_config
            )

        return _one_of(way, found, resolve)
    if tensors is not None and found.consumer.reading in ("list", "slots"):
        return way.end(_of_list(way, found.consumer, shape, tensors))
    return way.end(_trained(way, found, shape, ids, engine, draft_config))


def _served(way: Way, found: AtVersion, shape: Shape, config: Mapping[str, Any]) -> Wiring | None:
    consumer = found.consumer
    held = rule_of(way, found, shape)
    if not captures(way, consumer, config):
        return way.wiring(consumer, shape, [FINAL_NORMED])
    default = default_boundaries(consumer, held.rule if held else None, shape.n_layers) or []
    ids = written_ids(way, consumer, config, default)
    if held is None or way.lost:
        return None
    boundaries = boundaries_of(way, consumer, held, shape, ids)
    if boundaries is None:
        return None
    asked = len(ids if ids is not None else default)
    check_width(way, consumer, asked, boundaries, width_of(consumer, config))
    return None if way.lost else way.wiring(consumer, shape, tensor_names(boundaries, shape.n_layers))


def _trained(
    way: Way,
    found: AtVersion,
    shape: Shape,
    ids: Sequence[int] | None,
    engine: str | None,
    draft_config: Mapping[str, Any] | None,
) -> Wiring | None:
    consumer = found.consumer
    given = _given(way, consumer, shape, ids, draft_config)
    if consumer.fc:
        target = consumer.target.tensor if consumer.target else None
        return None if way.lost else way.wiring(consumer, shape, consumer.fc, target)
    held = rule_of(way, found, shape, engine)
    if held is None or way.lost:
        return None
    boundaries = boundaries_of(way, consumer, held, shape, given)
    if boundaries is None:
        return None
    fc = tensor_names(boundaries, shape.n_layers)
    if consumer.ids_hold_target:
        return _of_list(way, consumer, shape, fc)
    default = default_boundaries(consumer, held.rule, shape.n_layers) or ()
    asked = len(given or consumer.default_ids or default)
    check_width(way, consumer, asked, boundaries, consumer.slots)
    if way.lost:
        return None
    return way.wiring(consumer, shape, fc, consumer.target.tensor if consumer.target else None)


def _given(
    way: Way,
    consumer: Declared,
    shape: Shape,
    ids: Sequence[int] | None,
    draft_config: Mapping[str, Any] | None,
) -> list[int] | None:
    """Return the ids that a trainer is given, outright or in the draft's config; `None`: it is given none."""
    if ids is None:
        if draft_config is None or not consumer.reads or not captures(way, consumer, draft_config):
            return None
        default = [formula(text, shape.n_layers) for text in consumer.default_ids or ()]
        return written_ids(way, consumer, draft_config, default)
    given = checked_ids(way, "ids", list(ids))
    way.steps.append(f"ids {short(list(ids))} as given")
    if not consumer.takes_ids:
        message = f"expected none for {consumer.title}, whose layers are fixed"
        way.wrong("ids", "ids", message, "give it no ids, or train with another trainer")
    return given


def _of_list(way: Way, consumer: Declared, shape: Shape, tensors: Sequence[str]) -> Wiring | None:
    if len(tensors) < 2:
        message = f"expected at least 2 tensors in the list, got {len(tensors)}"
        repair = f"hand {consumer.title} the inputs, in their order, and the target behind them"
        way.wrong("tensors", "slots", message, repair)
        return None
    *fc, target = tensors
    way.steps.append(
        f"{consumer.title} takes all but the last of its list as the input ({short(fc)}) "
        f"and the last as the target ({short(target)}): names and order are not checked"
    )
    return way.wiring(consumer, shape, fc, target)


def _one_of(way: Way, found: AtVersion, resolve: Callable[[str], Resolution]) -> Resolution:
    """Resolve every consumer that a name may stand for: one answer where all agree, else a problem."""
    members = members_at(found.consumer, way.version)
    answers = [resolve(member) for member in members]
    for answer in answers:
        way.by_default = way.by_default or answer.by_default
        way.steps += [f"{answer.consumer}: {step}" for step in answer.steps]
        # That no version was given is said once, of the name that was written.
        told = at_version(answer.consumer, way.version).assumed if found.assumed is not None else None
        way.assumptions += [text for text in answer.assumptions if text not in (*way.assumptions, told)]
        way.problems += [problem for problem in answer.problems if problem not in way.problems]
    wirings = [answer.wiring for answer in answers]
    first = wirings[0] if wirings else None
    if first is not None and all(wiring is not None and _alike(wiring, first) for wiring in wirings):
        return way.end(first.model_copy(update={"consumer": way.name}))
    said = "; ".join(f"{answer.consumer}: {_answer(answer.wiring)}" for answer in answers)
    if not any(wirings):
        way.lost = True
        return way.end()
    notes = " ".join(found.consumer.notes)
    meant = f"name the one that is meant, as --{found.consumer.kind} {members[0]}"
    way.wrong(
        found.consumer.kind,
        "undecided",
        f"expected one answer whichever of {', '.join(members)} it is, got {said}",
        f"{notes}, or {meant}" if notes else meant,
    )
    return way.end()


def _alike(wiring: Wiring, other: Wiring) -> bool:
    return wiring.model_copy(update={"consumer": other.consumer}) == other


def _answer(wiring: Wiring | None) -> str:
    if wiring is None:
        return "it cannot be said"
    target = ""
    if wiring.target is not None:
        target = f" with target {wiring.target.tensor}, " + (
            "which it norms" if wiring.target.applies_norm else "as it is"
        )
    return ", ".join(wiring.fc) + target
