"""A wiring as a person writes it: a consumer and the tensors; the rest is the consumer's declaration.

Tensors are always named. Nothing that decides which state goes where is filled in: only how many layers the
target has (the dataset's) and what `schemas.consumers` declares of the consumer at its version: who runs the
final norm, who shifts tokens, which mask goes with a pair, where positions begin.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.boundary import FINAL_NORMED
from schemas.card import Card
from schemas.consumers.declared import at_version, names
from schemas.consumers.resolution import Shape, Way
from schemas.consumers.resolve import resolve_trainer
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.request import read_wiring, request_problems
from schemas.schema import Schema
from schemas.target import Target
from schemas.wiring import Wiring as WholeWiring
from service.client.derived import FindNorm, can_be_made, no_norm
from service.client.errors import RefusedError


@dataclass(frozen=True)
class Wiring:
    """The tensors that a declared trainer is to take; `version` is the trainer's release.

    Without a version the newest declared one is assumed, and said in the stream's notes. A trainer that is
    not declared says all of its wiring itself: `schemas.wiring.Wiring`.

    >>> wiring = Wiring(consumer="speculators", fc=["layer2", "layer15", "layer27"], target="final")
    """

    consumer: str
    fc: Sequence[str] = ()
    target: str | None = None
    version: str | None = None


Asked = str | Wiring | WholeWiring | Card


class Settled(NamedTuple):
    """A whole wiring that the dataset satisfies, the card it came with, and what a person should know."""

    wiring: WholeWiring
    card: Card | None
    notes: tuple[Problem, ...]


def settle(asked: Asked, schema: Schema, find_norm: FindNorm = no_norm) -> Settled:
    """Return the whole wiring of what was asked, judged against a dataset's schema.

    `find_norm` is asked for the target's norm where the wiring takes what only a norm makes. Raises
    `RefusedError` with every problem; a bare library name is one, and its repair says that library's default
    for this target, written out.
    """
    card = asked if isinstance(asked, Card) else None
    assumed: list[Problem] = []
    if isinstance(asked, Card):
        wiring = asked.wiring
    elif isinstance(asked, WholeWiring):
        wiring = asked
    else:
        wiring, assumed = whole_wiring(asked, schema.target)
    norm = find_norm() if FINAL_NORMED in wiring.tensors and can_be_made(schema) else None
    found = [*assumed, *request_problems(schema, wiring=None if card else wiring, card=card, norm=norm)]
    found += _no_trainer(wiring)
    if any(problem.severity == "error" for problem in found):
        raise RefusedError(f"the dataset does not fit the wiring of {wiring.title}", found)
    return Settled(wiring, card, tuple(found))


def whole_wiring(asked: str | Wiring, target: Target) -> tuple[WholeWiring, list[Problem]]:
    """Return the whole wiring of a declared trainer on a target, and what was assumed for it, as notes.

    Raises `RefusedError` with every problem of the names, and for a bare library name.
    """
    if isinstance(asked, str) or not asked.fc:
        raise _bare(asked, target)
    way = Way(asked.consumer, asked.version)
    found = way.find("trainer")
    problems = [problem for problem in way.problems if problem.kind != "consumer"]
    if found is None and not problems:
        problems = [_undeclared(asked)]
    if asked.target is None:
        problems.append(_no_target(asked))
    wiring = None
    if found is not None and asked.target is not None:
        if isinstance(asked.fc, str):
            message = f"expected a list of tensors, got the text {asked.fc!r}"
            problems.append(Problem(where="wiring.fc", kind="slots", message=message, role="fc"))
        else:
            wiring = way.wiring(
                found.consumer,
                Shape(model_type=target.model_type, n_layers=target.n_layers),
                asked.fc,
                asked.target,
            )
            problems += [problem for problem in way.problems if problem not in problems]
    if wiring is None or problems:
        raise RefusedError(f"{asked.consumer}: not a whole wiring", problems)
    return wiring, [
        Problem(
            where="wiring.version",
            kind="assumed",
            severity="note",
            message=assumption,
            repair=f'say its release: Wiring(consumer="{asked.consumer}", version=...)',
        )
        for assumption in way.assumptions
    ]


def consumer_release(wiring: WholeWiring) -> str | None:
    """Return the declared release by which a wiring's consumer goes, `None` where it is not declared."""
    try:
        return at_version(wiring.consumer, wiring.version).release
    except (KeyError, ValueError):
        return None


def _bare(asked: str | Wiring, target: Target) -> RefusedError:
    """Return the refusal of a name without tensors, with its default for this target written out."""
    content: object = asked
    if isinstance(asked, Wiring):
        content = {"consumer": asked.consumer, "version": asked.version}
    try:
        read_wiring(json.dumps(content).encode(), target)
    except RecordError as error:
        name, _, given = (
            asked.partition("==") if isinstance(asked, str) else (asked.consumer, "", asked.version)
        )
        shape = Shape(model_type=target.model_type, n_layers=target.n_layers)
        default = resolve_trainer(name, given or None, shape).wiring
        problems = error.problems
        if default is not None:
            repair = (
                f"if you mean its default for {target.n_layers} layers, write it out: {_written(default)}"
            )
            problems = tuple(problem.model_copy(update={"repair": repair}) for problem in problems)
        return RefusedError(error.headline, problems)
    raise AssertionError("read_wiring takes no wiring without tensors")


def _written(wiring: WholeWiring) -> str:
    version = f', version="{wiring.version}"' if wiring.version else ""
    target = f', target="{wiring.target.tensor}"' if wiring.target else ""
    return f'Wiring(consumer="{wiring.consumer}"{version}, fc={json.dumps(list(wiring.fc))}{target})'


def _undeclared(asked: Wiring) -> Problem:
    example = (
        f'schemas.wiring.Wiring(consumer="{asked.consumer}", kind="trainer", n_layers=..., '
        f'fc={(*asked.fc,)}, target=TargetRole(tensor="{asked.target}", applies_norm=...), '
        "token_shift=..., mask_alignment=...)"
    )
    return Problem(
        where="wiring.consumer",
        kind="consumer",
        message=f"expected one of {', '.join(names('trainer'))}, got {asked.consumer!r}",
        repair=f"name one of them, or say all that a trainer of your own does: {example}",
    )


def _no_target(asked: Wiring) -> Problem:
    return Problem(
        where="wiring.target",
        kind="missing",
        message=f"expected the tensor of {asked.consumer}'s target by name, got none",
        repair='write target="final" for a trainer that runs the final norm itself, target="final_normed" '
        "for one that does not",
        role="target",
    )


def _no_trainer(wiring: WholeWiring) -> list[Problem]:
    if wiring.kind == "trainer":
        return []
    message = f"expected a trainer's wiring, got that of {wiring.title}, a {wiring.kind}"
    return [Problem(where="wiring.kind", kind="kind", message=message, repair="give the trainer's wiring")]
