"""`strata wire`: what to write for each server and trainer so that exactly these tensors are fed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from datagen.errors import ConfigError
from datagen.printing import printable
from datagen.wiring.inputs import shape_of
from schemas.boundary import name_of
from schemas.command import Parser
from schemas.consumers.declared import at_version, declared, names
from schemas.consumers.resolution import Shape
from schemas.consumers.write import Written, what_to_write
from schemas.judging import named
from schemas.problem import Problem

PROG = "strata wire"
DESCRIPTION = """Say what to write for each server and trainer so that exactly these boundaries are fed.

A boundary is the residual stream after so many decoder layers: 0 is embed. Every answer is proven by
resolving it back; a consumer that cannot be told so is listed with the reason. Exit codes: 0 all that were
asked for can be told, 1 one of them cannot, 2 could not try."""


def command(arguments: Sequence[str]) -> int:
    """Say what to write for each server and trainer so that exactly these boundaries are fed."""
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument(
        "--boundaries", required=True, metavar="B,B,...", help="as 3,31,59, in the draft's order"
    )
    parser.add_argument(
        "--target-config", type=Path, required=True, metavar="FILE", help="the target's config.json"
    )
    parser.add_argument("--server", action="append", metavar="NAME[==VERSION]", help="only these; repeatable")
    parser.add_argument(
        "--trainer", action="append", metavar="NAME[==VERSION]", help="only these; repeatable"
    )
    parser.add_argument(
        "--trainer-engine",
        metavar="NAME==VERSION",
        help="what trainers capture with, where it is not the release that they come with, as sglang==0.5.23",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(list(arguments))
    shape, _ = shape_of(None, None, given.target_config)
    boundaries = read_boundaries(given.boundaries)
    asked = [*(given.server or ()), *(given.trainer or ())]
    written = [
        what_to_write(*named(name), shape, boundaries, _engine(name, given.trainer_engine, not asked))
        for name in asked or _each()
    ]
    if given.json:
        answers = [answer.model_dump(mode="json") for answer in written]
        print(json.dumps({"boundaries": boundaries, "consumers": answers}))  # noqa: T201
    else:
        print(printable("\n".join(in_words(shape, boundaries, written))))  # noqa: T201
    # Of all consumers some always cannot; of those that were asked for, that is a problem.
    return int(any(_errors(answer) for answer in written) if asked else all(map(_errors, written)))


def _engine(name: str, engine: str | None, of_all: bool) -> str | None:
    """Return the engine for one consumer: of all of them, only those that capture with it are told of it."""
    known = {consumer.name: consumer for consumer in declared()}
    consumer = known.get(named(name)[0])
    if engine is None or consumer is None or consumer.kind == "server":
        return None
    usual = (consumer.engine or "").partition("==")[0]
    return engine if not of_all or usual == named(engine)[0] else None


def _each() -> list[str]:
    """Return every declared consumer, those left out that only stand for one of several others."""
    return [name for name in names() if not at_version(name, None).consumer.one_of]


def read_boundaries(text: str) -> list[int]:
    """Read `3,31,59`; raises `ConfigError` for anything else."""
    pieces = [piece.strip() for piece in text.split(",")]
    if all(piece.isascii() and piece.isdigit() and len(piece) < 7 for piece in pieces):
        return [int(piece) for piece in pieces]
    message = f"expected whole numbers as 3,31,59, got {text[:80]!r}"
    repair = "write boundaries, not names: 0 is embed, b is layer{b}, the number of layers is final"
    problem = Problem(where="--boundaries", kind="boundary", message=message, repair=repair)
    raise ConfigError("these are no boundaries", [problem])


def in_words(shape: Shape, boundaries: Sequence[int], written: Sequence[Written]) -> Iterator[str]:
    """Yield what a person reads: the tensors, then what to write where, then who cannot and why."""
    tensors = [name_of(b, shape.n_layers) if b <= shape.n_layers else f"boundary {b}" for b in boundaries]
    yield f"{', '.join(tensors)} of {shape.model_type}, {shape.n_layers} layers"
    for answer in written:
        title = answer.consumer + (f"=={answer.version}" if answer.version else "")
        yield ""
        if _errors(answer):
            yield f"{title}: cannot"
            yield from (f"    {problem}" for problem in _errors(answer))
            continue
        yield f"{title}: {answer.where}"
        if answer.snippet:
            yield from (f"    {line}" for line in answer.snippet.splitlines())
        yield from (f"    note: {problem}" for problem in answer.problems)
        yield from (f"    assumed: {assumption}" for assumption in answer.assumptions)


def _errors(answer: Written) -> list[Problem]:
    return [problem for problem in answer.problems if problem.severity == "error"]
