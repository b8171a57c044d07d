"""The sides of a check as whoever asks gives them, and whether they are enough to compare."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.card import Card
from schemas.dataset_facts import DatasetFacts
from schemas.problem import Problem
from schemas.target import Target
from schemas.wiring import Wiring


@dataclass(frozen=True)
class WiringFile:
    """A wiring of one's own in TOML, and what the file is called."""

    text: str
    name: str


@dataclass(frozen=True)
class Sides:
    """What a check compares; at least two of dataset, trainer (or wiring), card and server.

    A card stands in for a trainer; beside one it says what that trainer is meant to take.
    """

    dataset: DatasetFacts | None = None
    trainer: str | None = None
    """`NAME[==VERSION]`."""
    trainer_ids: tuple[int, ...] | None = None
    """Layer ids that the trainer is given, in its own numbers, in place of its default."""
    trainer_engine: str | None = None
    """What the trainer captures with (`sglang==0.5.23`), where that is not the release it comes with."""
    trainer_wiring: WiringFile | Wiring | None = None
    card: Card | None = None
    server: str | None = None
    """`NAME[==VERSION]`."""
    server_wiring: WiringFile | None = None
    """A server of one's own, in place of `server`."""
    draft_config: Mapping[str, Any] | None = None
    """The draft's `config.json`."""
    draft_tensors: Mapping[str, tuple[int, ...]] | None = None
    """Name and shape of each of its weights, where they are known."""
    unread: Sequence[Problem] = ()
    """What was wrong with reading those."""
    target: Target | None = None
    """As the target's own `config.json` tells it."""
    server_args: str | None = None
    raw: bool = False
    """Whether the trainer reads samples as they are stored: no export, and not the client, between them."""
    as_flags: bool = True
    """Whether what to add is said as flags of a command, or as fields of a request."""

    def word(self, name: str) -> str:
        """Return a side's name as whoever asks writes it.

        >>> Sides().word("server_args"), Sides(as_flags=False).word("server_args")
        ('--server-args', 'server_args')
        """
        return f"--{name.replace('_', '-')}" if self.as_flags else name

    @property
    def has_trainer(self) -> bool:
        """Whether a trainer is asked about, by name or by a wiring."""
        return self.trainer is not None or self.trainer_wiring is not None


def side_problems(given: Collection[str], word: Callable[[str], str]) -> list[Problem]:
    """Return why `given`, the names of the sides that there are, is too little or too much to compare.

    `word` spells a name as whoever asks writes it.
    """
    problems = []
    has_trainer = bool({"trainer", "trainer_wiring"} & set(given))
    if {"trainer", "trainer_wiring"} <= set(given):
        message = f"expected one of {word('trainer')} and {word('trainer_wiring')}, got both"
        problems.append(_usage("trainer", message, "drop the one that does not run"))
    has_server = bool({"server", "server_wiring"} & set(given))
    if {"server", "server_wiring"} <= set(given):
        message = f"expected one of {word('server')} and {word('server_wiring')}, got both"
        problems.append(_usage("server", message, "drop the one that does not serve"))
    for name in ("trainer_ids", "trainer_engine"):
        if name in given and "trainer" not in given:
            message = f"expected {word('trainer')} with it, got none"
            problems.append(_usage(word(name), message, f"add {word('trainer')} NAME"))
    if "raw" in given and not ("dataset" in given and has_trainer):
        message = f"expected {word('dataset')} and a trainer with it, got one or none"
        problems.append(_usage(word("raw"), message, "add them: it says how the trainer reads the dataset"))
    sides = len({"dataset", "card"} & set(given)) + has_trainer + has_server
    if sides < 2:
        message = (
            f"expected two of {word('dataset')}, a trainer, {word('card')} and {word('server')}, got {sides}"
        )
        repair = f"a trainer is {word('trainer')} NAME[==VERSION] or {word('trainer_wiring')} FILE"
        problems.append(_usage("check", message, repair))
    if "server_args" in given and "server" not in given:
        message = f"expected {word('server')} with it, got none"
        problems.append(_usage(word("server_args"), message, f"add {word('server')} NAME[==VERSION]"))
    return problems


def _usage(where: str, message: str, repair: str) -> Problem:
    return Problem(where=where, kind="usage", message=message, repair=repair)
