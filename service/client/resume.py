"""The state of a stream: one global position, and what must be the same for it to mean the same samples."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.problem import Problem
from schemas.wiring import Wiring
from service.client.errors import StateError
from service.client.plan import Plan
from service.client.turns import Position

FORMAT = "strata.stream.v1"


@dataclass(frozen=True)
class Selection:
    """Which samples of a version: those of a split, of so many tokens and trained tokens at least."""

    split: str | None = None
    min_tokens: int = 0
    min_trained: int = 0


def identity_of(
    dataset: str, number: int, fingerprint: str, selection: Selection, plan: Plan, wiring: Wiring
) -> dict[str, Any]:
    """Return what must be the same when a stream goes on: JSON values by name.

    Ranks, world size, workers, prefetching, layout and format are not among it: they may change.
    """
    return {
        "dataset": dataset,
        "version": number,
        "schema": fingerprint,
        "split": selection.split,
        "min_tokens": selection.min_tokens,
        "min_trained": selection.min_trained,
        "samples": _digest(plan),
        "seed": plan.seed,
        "tokens_per_batch": plan.budget.tokens,
        "samples_per_batch": plan.budget.samples,
        "too_long": plan.budget.too_long,
        "fc": list(wiring.fc),
        "target": wiring.target.tensor if wiring.target is not None else None,
    }


def state_of(identity: Mapping[str, Any], at: Position) -> dict[str, Any]:
    """Return the state at a position: plain JSON values, to be kept with a checkpoint."""
    return {"format": FORMAT, "epoch": at.epoch, "position": at.position, **identity}


def read_state(state: object, identity: Mapping[str, Any]) -> Position:
    """Return the position of a state.

    Raises `StateError` with every difference from `identity`, and for what is no state of a stream.
    """
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        got = state.get("format") if isinstance(state, Mapping) else type(state).__name__
        message = f"expected a state of the format {FORMAT}, got {got!r}"
        raise StateError("not a stream's state", [Problem(where="state", kind="format", message=message)])
    problems = [
        Problem(
            where=f"state.{name}",
            kind="difference",
            message=f"expected {state.get(name)!r} (the state that was saved), got {now!r} (this stream)",
            repair="open the stream as it was when its state was saved, or begin a new one at epoch 0",
        )
        for name, now in identity.items()
        if name not in state or state[name] != now
    ]
    at = []
    for name in ("epoch", "position"):
        value = state.get(name)
        if type(value) is not int or value < 0:
            message = f"expected a whole number from 0 on, got {value!r}"
            problems.append(Problem(where=f"state.{name}", kind="range", message=message))
        else:
            at.append(value)
    if problems:
        raise StateError("the state is of another stream", problems)
    return Position(*at)


def read_turn(state: Mapping[str, Any], here: Mapping[str, Any]) -> int:
    """Return a worker's turn from its state; raises `StateError` when `here` is not that worker."""
    problems = [
        Problem(
            where=f"state.{name}",
            kind="worker",
            message=f"expected {state.get(name)} (whose state it is), got {here.get(name, 'no worker')}",
            repair="go on from the `state` of the last batch that was trained on: it is that of all workers",
        )
        for name in ("worker", "rank")
        if state.get(name) != here.get(name)
    ]
    turn = state.get("turn")
    if type(turn) is not int or turn < 0:
        message = f"expected a whole number from 0 on, got {turn!r}"
        problems.append(Problem(where="state.turn", kind="range", message=message))
    if problems or not isinstance(turn, int):
        raise StateError("the state is of another worker", problems)
    return turn


def _digest(plan: Plan) -> str:
    """Return the sha256 of the samples' ids and lengths, 32 hexadecimal digits of it."""
    digest = hashlib.sha256(plan.sample_ids.tobytes())
    digest.update(plan.lengths.astype("<i8").tobytes())
    return digest.hexdigest()[:32]
