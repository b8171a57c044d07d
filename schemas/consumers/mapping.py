"""From ids, or from their absence, to boundaries: the rule, the default, the order, and what cannot be."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from schemas.boundary import name_of
from schemas.consumers.declared import AtVersion, Declared, IdRule, at_version
from schemas.consumers.resolution import Shape, Way, short
from schemas.consumers.rules import RULES, formula


class Held(NamedTuple):
    """The id rule that holds, and who captures by it, at which release."""

    rule: IdRule
    captor: Declared
    release: str

    @property
    def who(self) -> str:
        """Who captures, as a person says it."""
        return f"{self.captor.title} {self.release}" if self.captor.versions else self.captor.title


def rule_of(way: Way, found: AtVersion, shape: Shape, engine: str | None = None) -> Held | None:
    """Return the id rule of a consumer, or of the engine it captures with; or say why none holds.

    `engine` names another version of that engine than the declared one.
    """
    captor = _captor(way, found, engine)
    if captor is None:
        return None
    consumer, release = captor.consumer, captor.release
    rule = consumer.rule_for(shape.model_type, release)
    if rule is None:
        _no_rule(way, consumer, shape, release)
        return None
    if not consumer.names_model(shape.model_type) and len(consumer.ids) > 1:
        way.assumptions.append(
            f"{shape.model_type[:80]} is not declared for {consumer.title}: "
            "the rule of most models is assumed"
        )
    if rule.never is not None:
        message = f"{consumer.title} {release} on {shape.model_type}: {rule.never}"
        way.wrong("architecture", "architecture", message, "use another version, or another server")
    return Held(rule, consumer, release)


def _captor(way: Way, found: AtVersion, engine: str | None) -> AtVersion | None:
    declared = found.consumer.engine
    if declared is None:
        if engine is None:
            return found
        message = f"expected none for {found.consumer.title}, whose ids mean the same with any, got "
        way.wrong("engine", "consumer", message + short(engine), "leave the trainer's engine out")
        return None
    usual, (name, _, version) = declared.partition("==")[0], (engine or declared).partition("==")
    try:
        captor = at_version(name if name == usual else "", version or None)
    except (KeyError, ValueError):
        message = f"expected {usual} at a version, which {found.consumer.title} captures with, got "
        way.wrong("engine", "consumer", message + short(engine), f"write {usual}==VERSION, as {declared}")
        return None
    title = f"{captor.consumer.title} {captor.release}"
    way.steps.append(f"{found.consumer.title} captures with {title}, whose rule holds")
    if captor.assumed is not None:
        way.assumptions.append(captor.assumed)
    if engine is None:
        way.assumptions.append(f"{found.consumer.title} is assumed to capture with {title}, its own release")
    return captor


def default_boundaries(consumer: Declared, rule: IdRule | None, n_layers: int) -> list[int] | None:
    """Return the boundaries that a consumer takes when no ids are written; `None`: it has no default."""
    if rule is not None and rule.default is not None:
        return [formula(text, n_layers) for text in rule.default]
    if consumer.default is not None:
        return [formula(text, n_layers) for text in consumer.default]
    return None


def boundaries_of(
    way: Way, consumer: Declared, held: Held, shape: Shape, ids: Sequence[int] | None
) -> list[int] | None:
    """Return the boundaries that are captured, in the order in which they are fed; `None`: there are none."""
    rule, n_layers = held.rule, shape.n_layers
    way.by_default = ids is None
    if ids is None and consumer.default_ids is not None:
        ids = [formula(text, n_layers) for text in consumer.default_ids]
        way.steps.append(f"so its default ids {list(consumer.default_ids)} with n={n_layers}: {ids}")
    if ids is None:
        boundaries = default_boundaries(consumer, rule, n_layers)
        if boundaries is None:
            message = f"expected layer ids, got none: {consumer.title} has no default"
            way.wrong("ids", "ids", message, how_to_give(consumer, "layer ids"))
            return None
        said = list(rule.default or consumer.default or ())
        way.steps.append(f"so its default {said} with n={n_layers}: boundaries {boundaries}")
    else:
        mapped = RULES[rule.rule](ids, n_layers)
        boundaries = list(mapped.boundaries)
        way.steps.append(f"{shape.model_type}: {mapped.reason}: boundaries {boundaries} ({rule.source})")
        low = consumer.min_id
        if low is not None and min(ids) < low:
            message = f"expected ids from {low} up for {consumer.title}, got {list(ids)}"
            way.wrong("ids", "ids", message, how_to_give(consumer, f"ids from {low} up"))
        if consumer.distinct and len(set(ids)) != len(ids):
            message = f"expected each id once for {consumer.title}, got {list(ids)}"
            way.wrong("ids", "ids", message, how_to_give(consumer, "each id once"))
    _check(way, consumer, held, n_layers, boundaries)
    return None if way.lost else _ordered(way, consumer, boundaries)


def check_width(way: Way, consumer: Declared, asked: int, captured: Sequence[int], width: int | None) -> None:
    """Say where fewer tensors are captured than asked for, or other than the draft's input layer takes."""
    if len(captured) != asked:
        way.wrong(
            "ids",
            "slots",
            f"expected {asked} different boundaries, got {list(captured)}: {consumer.title} captures a layer "
            "once, so the draft's input layer is fed too little",
            how_to_give(consumer, f"{asked} different ids"),
        )
    elif width is not None and width != len(captured):
        message = f"expected {width} boundaries for {consumer.title}, got {len(captured)}"
        if not consumer.width:
            way.wrong("ids", "slots", message, how_to_give(consumer, f"{width} ids"))
            return
        way.beside(
            "num_aux_hidden_states",
            "width",
            f"{message}: the draft's input layer is built for {width} tensors",
            f"write num_aux_hidden_states = {len(captured)} in the draft's config",
            severity="note",
        )


def how_to_give(consumer: Declared, what: str) -> str:
    """Return a repair: what to write, where this consumer reads it, and how to find out which ids."""
    if not consumer.takes_ids:
        return "train with another trainer: the layers of this one are fixed"
    if consumer.writing is None:
        read = " or ".join(consumer.reads)
        trained = consumer.kind == "trainer"
        given = f"give {what}" + (", as ids under [given] in its wiring file" if trained else "")
        return (
            f"write {what} as {read} in the draft's config.json"
            if read
            else f"{given}, or use another version"
        )
    return (
        f"write {what} as {consumer.writing.name} in {consumer.writing.where}; `strata wire --boundaries "
        "B,B,B --target-config FILE` says which ids mean which boundaries"
    )


def tensor_names(boundaries: Sequence[int], n_layers: int) -> list[str]:
    """Return the names of boundaries."""
    return [name_of(boundary, n_layers) for boundary in boundaries]


def _no_rule(way: Way, consumer: Declared, shape: Shape, release: str) -> None:
    versions = [rule.versions for rule in consumer.ids if shape.model_type in rule.models]
    if versions:
        message = f"expected a version of {consumer.title} that captures from {shape.model_type} "
        message += f"({' or '.join(versions)}), got {release}"
        way.wrong("architecture", "architecture", message, "use such a version")
        return
    way.wrong(
        "architecture",
        "architecture",
        f"expected one that {consumer.title} is known for, got {shape.model_type[:80]!r}",
        "declare its rule, or give the boundaries themselves in a wiring file",
    )


def _check(way: Way, consumer: Declared, held: Held, n_layers: int, boundaries: Sequence[int]) -> None:
    outside = [b for b in boundaries if not 0 <= b <= n_layers]
    if outside:
        slots = [slot for slot, b in enumerate(boundaries) if b in outside]
        message = (
            f"expected boundaries from 0 to {n_layers}, got {outside} in {_slots(slots)}: no layer reads that"
        )
        repair = how_to_give(consumer, f"ids of boundaries from 0 to {n_layers}")
        way.wrong("ids", "boundary", message, repair, slots[0])
    places: tuple[tuple[int, Literal["embed", "final"]], ...] = ((0, "embed"), (n_layers, "final"))
    for boundary, place in places:
        if boundary in boundaries and not held.rule.can(place, held.release):
            said = held.rule.embed if place == "embed" else held.rule.final
            why = held.rule.embed_why if place == "embed" else held.rule.final_why
            since = f" (it can in {said})" if isinstance(said, str) else ""
            slot = boundaries.index(boundary)
            message = f"{place} cannot be captured by {held.who} on this model{since}, "
            message += f"and {_slots([slot])} asks for it"
            message += f": {why}" if why else ""
            newer = f", or use {held.captor.title} {said}" if isinstance(said, str) else ""
            way.wrong("ids", "boundary", message, how_to_give(consumer, f"ids without {place}") + newer, slot)


def _slots(slots: Sequence[int]) -> str:
    return ("slot " if len(slots) == 1 else "slots ") + ", ".join(map(str, slots))


def _ordered(way: Way, consumer: Declared, boundaries: list[int]) -> list[int] | None:
    ascending = sorted(set(boundaries))
    if boundaries == ascending or consumer.order == "kept":
        return boundaries
    if consumer.order == "must_ascend":
        message = f"expected ascending ids without doubles, got boundaries {boundaries}"
        way.wrong("ids", "order", message, how_to_give(consumer, "the ids in ascending order, each once"))
        return None
    way.steps.append(
        f"{consumer.title} captures in the order of depth, each layer once: {boundaries} becomes {ascending}"
    )
    return ascending
