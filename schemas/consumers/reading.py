"""What a server reads of the ids in a draft's config, and what it does with something else in their place.

Servers differ: an empty list is no id for one and no layer for another, and what is malformed may end the
start or count as absent. Where something is written and not read, it is said: that is how drafts are fed
other layers than their config shows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemas.consumers.declared import Declared
from schemas.consumers.resolution import Way, short

MAX_IDS = 64
MAX_ID = 100_000
OTHER_DRAFTS = ("dflash_config.target_layer_ids", "dspark_target_layer_ids", "target_layer_ids")
"""Where other kinds of drafts have their ids: vLLM 0.33's eagle3_utils.py reads all three, and adds 1."""
_LIST = (
    "write a list of whole numbers there, as [3, 31, 59]; `strata wire --boundaries B,B,B --target-config "
    "FILE` says which ids mean which boundaries"
)
Config = Mapping[str, Any]


class Absent:
    """Stands for a value that is not there at all, which is not the same as `null`."""


ABSENT: Final = Absent()


def at(config: Config, path: str) -> Any:
    """Return the value at a dotted path, or `ABSENT`."""
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def captures(way: Way, consumer: Declared, config: Config) -> bool:
    """Say whether the config leaves capture on, for a consumer that can be told to leave it."""
    if _fails(way, consumer, config) or consumer.capture_flag is None:
        return True
    said = at(config, consumer.capture_flag)
    if isinstance(said, Absent):
        return True
    if not isinstance(said, bool):
        way.beside(
            consumer.capture_flag,
            "flag",
            f"expected true or false, got {short(said)}, which counts as {bool(said)}".lower(),
            "write true or false",
        )
    if not said:
        way.steps.append(
            f"{consumer.capture_flag} is {short(said)}: no layer is captured, and the draft "
            "is handed the last state after the final norm"
        )
    return bool(said)


def written_ids(way: Way, consumer: Declared, config: Config, default: Sequence[int]) -> list[int] | None:
    """Return the ids that the consumer reads; `None` where it reads none and takes its default."""
    _check_parents(way, consumer, config)
    there = {path: value for path in consumer.reads if not _is_nothing(consumer, value := at(config, path))}
    if not there and _is_of_another_kind(way, consumer, config):
        return None
    if not there:
        _say_unread(way, consumer, config, default)
        way.steps.append(f"no ids are read from {' or '.join(consumer.reads) or 'the config'}")
        return None
    path, value = next(iter(there.items()))
    for other, theirs in list(there.items())[1:]:
        if not _same(value, theirs):
            way.beside(
                other,
                "ids",
                f"{short(theirs)} is not read, since {path} holds {short(value)}",
                "write the same ids in both, or in one of them",
                severity="note",
            )
    if not isinstance(value, list):
        if consumer.malformed == "default":
            _unread(way, consumer, path, value, "a list of layer ids")
            return None
        message = f"expected a list of layer ids, got {short(value)}: {consumer.title} fails on it"
        way.wrong(path, "ids", message, _LIST)
        return None
    way.steps.append(f"ids {short(value)} from {path}")
    return checked_ids(way, path, value)


def checked_ids(way: Way, where: str, value: object) -> list[int] | None:
    """Return a list of ids as such, or say what is wrong with it."""
    if not isinstance(value, list) or not value or len(value) > MAX_IDS:
        way.wrong(where, "ids", f"expected a list of 1 to {MAX_IDS} layer ids, got {short(value)}", _LIST)
        return None
    bad = [item for item in value if isinstance(item, bool) or not isinstance(item, int)]
    if bad:
        way.wrong(where, "ids", f"expected whole numbers, got {short(bad)}", _LIST)
        return None
    if any(abs(item) > MAX_ID for item in value):
        way.wrong(where, "ids", f"expected layer ids below {MAX_ID}, got {short(value)}", _LIST)
        return None
    return list(value)


def width_of(consumer: Declared, config: Config) -> int | None:
    """Return how many tensors the draft's input layer takes as the server builds it; `None`: not known."""
    for path in consumer.width:
        value = at(config, path)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, list) and value:
            return len(value)
    return consumer.slots


def _fails(way: Way, consumer: Declared, config: Config) -> bool:
    """Say whether a consumer does not even start, because the object with its flag, or ids, is none."""
    parent = (consumer.capture_flag or next(iter(consumer.reads), "")).rpartition(".")[0]
    value = at(config, parent) if parent else ABSENT
    if isinstance(value, Absent | Mapping) or value is None or consumer.no_object == "default":
        return False
    if consumer.no_object == "fails_unless_empty" and not value:
        return False
    message = f"expected an object, got {short(value)}: {consumer.title} fails on it at start"
    way.wrong(parent, "flag", message, "drop it, or write an object")
    return True


def _check_parents(way: Way, consumer: Declared, config: Config) -> None:
    said = {problem.where for problem in way.problems}
    for parent in dict.fromkeys(path.rpartition(".")[0] for path in consumer.reads):
        value = at(config, parent) if parent and parent not in said else ABSENT
        if not isinstance(value, Absent | Mapping) and value is not None:
            _unread(way, consumer, parent, value, "an object that holds the ids")


def _is_nothing(consumer: Declared, value: object) -> bool:
    """Say whether a consumer takes a value for none at all."""
    if isinstance(value, Absent) or value is None:
        return True
    return consumer.empty == "absent" and not value


def _is_of_another_kind(way: Way, consumer: Declared, config: Config) -> bool:
    """Refuse the ids of a DFlash or DSpark draft, whose rules are not declared; a default is a guess."""
    for path in OTHER_DRAFTS:
        value = at(config, path)
        if isinstance(value, list) and value:
            what = (
                f"expected the ids of an EAGLE-3 draft, got {short(value)}, those of a DFlash or DSpark draft"
            )
            way.wrong(
                path,
                "draft_kind",
                f"{what}: what {consumer.title} makes of them is not declared",
                "check such a draft by a wiring file that names its tensors: these ids are counted from 0 "
                "after a layer, so id i is boundary i + 1",
            )
            return True
    return False


def _say_unread(way: Way, consumer: Declared, config: Config, default: Sequence[int]) -> None:
    for path in consumer.ignores:
        value = at(config, path)
        if isinstance(value, Absent) or value is None or value == []:
            continue
        if isinstance(value, list) and value == list(default):
            way.steps.append(f"{path} = {short(value)} is not read, but names the default's layers")
            continue
        _unread(way, consumer, path, value, "no ids here")


def _unread(way: Way, consumer: Declared, path: str, value: object, expected: str) -> None:
    reads = " or ".join(consumer.reads)
    way.beside(
        path,
        "unread",
        f"expected {expected}, got {short(value)}: {consumer.title} does not read it, says nothing, "
        "and takes its default",
        f"write the ids as {reads} in the draft's config.json"
        if reads
        else f"no version {consumer.versions} reads ids: use another",
    )


def _same(value: object, other: object) -> bool:
    if not (isinstance(value, list) and isinstance(other, list)) or len(value) != len(other):
        return False
    flat = (bool | int | float | str | type(None),)
    return all(
        isinstance(a, flat) and isinstance(b, flat) and a == b for a, b in zip(value, other, strict=True)
    )
