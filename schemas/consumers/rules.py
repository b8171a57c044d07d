"""How a consumer turns the ids that a person writes into boundaries: rules as pure functions with reasons.

An id is an engine's own number. Some engines number what a layer reads (`b = id`), some what it writes
(`b = id + 1`), and some guess from the ids themselves which of the two was meant.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

RuleName = Literal[
    "as_written", "after_layer", "after_layer_if_first_is_one", "as_written_if_last_is_n_layers"
]


class Mapped(NamedTuple):
    """Boundaries in the order of the ids, and why."""

    boundaries: tuple[int, ...]
    reason: str


def as_written(ids: Sequence[int], _n_layers: int) -> Mapped:
    """An id is what that layer reads: the residual stream after `id` layers."""
    return Mapped(tuple(ids), "an id is the boundary itself: what layer id reads")


def after_layer(ids: Sequence[int], _n_layers: int) -> Mapped:
    """An id is what that layer (counted from 0) writes."""
    return Mapped(
        tuple(id_ + 1 for id_ in ids), "an id is what layer id writes, counted from 0: boundary id + 1"
    )


def after_layer_if_first_is_one(ids: Sequence[int], n_layers: int) -> Mapped:
    """SGLang's rule for DeepSeek and Kimi since its change of convention: the first id decides for all."""
    if ids and ids[0] == 1:
        return Mapped(after_layer(ids, n_layers).boundaries, "the first id is 1, so all ids get 1 added")
    return Mapped(tuple(ids), "the first id is not 1, so ids are taken as they are")


def as_written_if_last_is_n_layers(ids: Sequence[int], n_layers: int) -> Mapped:
    """SGLang's rule for gpt-oss: an id that only a boundary can have decides for all."""
    if ids and max(ids) == n_layers:
        return Mapped(
            tuple(ids), f"the largest id is the number of layers, {n_layers}, so ids are taken as they are"
        )
    return Mapped(
        after_layer(ids, n_layers).boundaries,
        f"the largest id is not the number of layers, {n_layers}, so all get 1 added",
    )


RULES: Mapping[RuleName, Callable[[Sequence[int], int], Mapped]] = {
    "as_written": as_written,
    "after_layer": after_layer,
    "after_layer_if_first_is_one": after_layer_if_first_is_one,
    "as_written_if_last_is_n_layers": as_written_if_last_is_n_layers,
}


def ids_for(rule: RuleName, boundaries: Sequence[int], n_layers: int) -> tuple[int, ...] | None:
    """Return the ids to write so that a rule gives exactly these boundaries; `None` when no ids do.

    >>> ids_for("after_layer", (3, 31, 59), 61), ids_for("after_layer_if_first_is_one", (1, 5), 61)
    ((2, 30, 58), None)
    """
    return next(candidates(rule, boundaries, n_layers), None)


def candidates(rule: RuleName, boundaries: Sequence[int], n_layers: int) -> Iterator[tuple[int, ...]]:
    """Yield each list of ids that a rule turns into these boundaries, in order; `embed` may need id -1."""
    for shift in (0, 1):
        ids = tuple(boundary - shift for boundary in boundaries)
        if RULES[rule](ids, n_layers).boundaries == tuple(boundaries):
            yield ids


_FORMULA = re.compile(r"(n//2|n|[0-9]{1,6})([+-][0-9]{1,6})?")


def formula(text: str, n_layers: int) -> int:
    """Return the value of a default written as a formula of the number of layers.

    Raises `ValueError` for what is none.

    >>> [formula(text, 61) for text in ("2", "n//2", "n-3", "n//2+1", "n")]
    [2, 30, 58, 31, 61]
    """
    match = _FORMULA.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a formula as n//2-1, got {text[:40]!r}")
    term, rest = match.groups()
    start = {"n": n_layers, "n//2": n_layers // 2}.get(term)
    return (int(term) if start is None else start) + int(rest or 0)
