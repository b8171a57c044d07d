"""What the service's checks may be asked to compare, and their answer: `POST /v1/check`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from schemas.card import Card
from schemas.problem import Problem
from schemas.record import Record, canonical_json
from schemas.wiring import Wiring
from service.client.answers import Answer


class Question(TypedDict, total=False):
    """At least two of dataset, trainer (or wiring), card and server, the dataset or the card among them."""

    dataset: str
    version: str
    """The dataset's version: a number, a name or `latest`."""
    trainer: str
    """`NAME[==VERSION]`, with its default wiring, or that of `trainer_ids`."""
    trainer_ids: Sequence[int]
    """The layer ids that the trainer is given, in its own numbers."""
    trainer_engine: str
    """What the trainer captures with."""
    wiring: Wiring
    """The wiring of a trainer in full, in place of `trainer`."""
    card: Card
    server: str
    """`NAME[==VERSION]`."""
    server_args: str
    """The command line that the server is started with."""
    draft_config: Mapping[str, Any]
    """The draft's `config.json`."""
    raw: bool
    """Whether the trainer reads samples as they are stored."""


class CheckAnswer(Answer):
    """What a check found: every problem, notes among them; `ok` says that none is an error.

    `trainer` and `server` say which tensors each takes in which slot, and why, as `strata check --json` does.
    """

    ok: bool
    trainer: dict[str, Any] | None = None
    server: dict[str, Any] | None = None
    problems: tuple[Problem, ...]


def body_of(question: Question) -> bytes:
    """Return a question as a request's body."""
    said = {
        name: value.model_dump(mode="json") if isinstance(value, Record) else value
        for name, value in question.items()
    }
    return canonical_json(said)
