"""What each server version reads of a contract: the records of `servers.toml`, and the look-ups in it.

A server, version or draft class that is not there is said to be unknown, never guessed in silence.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pydantic import Field

from schemas.consumers.versions import in_range, release_of
from schemas.contract.draft import DraftContract, FlagName
from schemas.problem import Problem
from schemas.record import Record

NEVER = "never"
"""In place of a range of versions: in none of those read."""


class Meaning(Record):
    """A norm flag: what it does, the weights that it needs, and what follows where it is lost."""

    name: FlagName
    says: str
    follows: str
    weights: tuple[str, ...]

    def owns(self, tensor: str) -> bool:
        """Say whether a weight belongs to this flag."""
        return any(re.fullmatch(rf"(model\.)?{pattern}", tensor) for pattern in self.weights)


class FlagReader(Record):
    """In which versions a class of a server reads a flag, by the layout of the config."""

    server: str
    name: FlagName
    architectures: tuple[str, ...]
    plain: str = NEVER
    speculators: str = NEVER
    missing_in_speculators: bool = False
    """What the server takes where speculators' layout does not say."""
    source: str


class DraftClass(Record):
    """What a server's class for drafts does with a checkpoint."""

    server: str
    versions: str
    class_name: str = Field(alias="class")
    names: tuple[str, ...]
    """What `architectures` may say to get this class."""
    model_types: tuple[str, ...] = ()
    """Model types of speculators' layout that get this class."""
    unknown: Literal["skipped", "warned", "refused"]
    silent: tuple[str, ...] = ()
    silent_in: str = ""
    layer: str
    weights: tuple[str, ...]
    """Groups of names that it loads, the norms of `Meaning` aside."""
    prefix: str = ""
    several_layers: str = ""
    rope_parameters: str = ""
    embeds_the_target: bool = False
    """The target's `embed_tokens` takes the place of the checkpoint's."""
    reads_tie: bool = False
    window: str = ""
    """Versions in which the config's window is applied."""
    window_flag: str | None = None
    refuses_full_map: str = NEVER
    source: str


class Server(Record):
    """A server and the releases between which its files were read."""

    name: str
    title: str
    first: str
    last: str
    speculators: str
    default_class: str
    source: str


class Reading(NamedTuple):
    """A server's class at a version: all that a check asks."""

    server: Server
    version: str
    draft_class: DraftClass

    @property
    def title(self) -> str:
        """The server as a person names it."""
        return f"{self.server.title} {self.version}"

    def holds(self, versions: str) -> bool:
        """Say whether a range of the file holds this version."""
        return versions != NEVER and in_range(self.version, versions)

    def reader_of(self, flag: FlagName) -> FlagReader | None:
        """Return who reads a flag, `None` where this class never does."""
        mine = (reader for reader in _content().flag if reader.server == self.server.name)
        name = self.draft_class.class_name
        return next((one for one in mine if one.name == flag and name in one.architectures), None)

    def runs(self, flag: FlagName, contract: DraftContract) -> bool:
        """Say whether the server will run with a norm flag on, given what the config says."""
        reader, said = self.reader_of(flag), getattr(contract.norms, flag)
        if reader is None:
            return False
        versions = reader.speculators if contract.layout == "speculators" else reader.plain
        if not self.holds(versions):
            # Before a version passes the key on, the class itself has its own default: false.
            return False
        return reader.missing_in_speculators if said is None else bool(said)

    def fate_of(self, tensor: str) -> str:
        """Return what becomes of a weight that the class does not load, as it stands in a sentence."""
        draft_class = self.draft_class
        dropped = any(re.fullmatch(pattern, tensor) for pattern in draft_class.silent)
        if draft_class.unknown == "skipped" or (dropped and self.holds(draft_class.silent_in)):
            return "skipped without a word"
        return {"warned": "skipped with a warning in the log", "refused": "refused at start"}[
            draft_class.unknown
        ]

    def loads(self, tensor: str) -> bool:
        """Say whether the class loads a weight of this name, or its two maps, whatever the norm flags."""
        return any(re.fullmatch(pattern, tensor) for pattern in _patterns(self.draft_class))


class _Content(Record):
    weights: dict[str, tuple[str, ...]]
    meaning: tuple[Meaning, ...]
    flag: tuple[FlagReader, ...]
    draft_class: tuple[DraftClass, ...]
    server: tuple[Server, ...]


@cache
def _content() -> _Content:
    text = files(__package__).joinpath("servers.toml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = tomllib.loads(text)
    return _Content.model_validate(content)


def _patterns(draft_class: DraftClass) -> tuple[str, ...]:
    groups = (_content().weights[group] for group in draft_class.weights)
    patterns = (pattern.replace("{layer}", draft_class.layer) for group in groups for pattern in group)
    return (r"(.*\.)?(d2t|t2d)", *(draft_class.prefix + pattern for pattern in patterns))


def meanings() -> tuple[Meaning, ...]:
    """Return the norm flags and what they mean."""
    return _content().meaning


def known_servers() -> tuple[Server, ...]:
    """Return the servers whose files were read."""
    return _content().server


def reading_of(
    contract: DraftContract, name: str, version: str | None
) -> tuple[Reading | None, list[Problem]]:
    """Return how a server reads this contract, and what had to be assumed; `None` where it cannot be told."""
    server = next((one for one in known_servers() if one.name == name.strip().lower()), None)
    if server is None:
        names = ", ".join(one.name for one in known_servers())
        message = f"expected one of {names}, got {name!r:.80}: its reading of a draft is not known"
        return None, [Problem(where="server", kind="unknown_server", severity="note", message=message)]
    assumed: list[Problem] = []
    if version is None:
        version = server.last
        message = f"no version of {server.title} given: taken as {server.last}, the last one read"
        assumed.append(_assumption(message, f"name it, as {server.name}=={server.last}"))
    try:
        release = release_of(version)
    except ValueError as error:
        repair = f"write it as {server.last}"
        return None, [Problem(where="server", kind="version", message=str(error)[:200], repair=repair)]
    if release < release_of(server.first):
        message = (
            f"expected {server.title} {server.first} or later, got {version}: no EAGLE-3 draft was read there"
        )
        repair = f"serve with {server.title} {server.first} or later"
        return None, [Problem(where="server", kind="version", message=message, repair=repair)]
    if release > release_of(server.last):
        message = (
            f"{server.title} {version} is newer than {server.last}, the last one read: taken to do the same"
        )
        assumed.append(_assumption(message, f"check against {server.last}, or read the newer one's files"))
    draft_class = _class_of(contract, server, version, assumed)
    return Reading(server, version, draft_class), assumed


def _class_of(contract: DraftContract, server: Server, version: str, assumed: list[Problem]) -> DraftClass:
    mine = [
        one for one in _content().draft_class if one.server == server.name and in_range(version, one.versions)
    ]
    default = next(one for one in mine if one.class_name == server.default_class)
    if contract.layout == "speculators":
        return next((one for one in mine if contract.model_type in one.model_types), default)
    named = next((one for one in mine if contract.architecture in one.names), None)
    if named is None:
        said = f"{contract.architecture!r:.80}" if contract.architecture else "none"
        message = f"expected an architecture that {server.title} {version} knows, got {said}: "
        message += f"taken as {default.class_name}"
        assumed.append(_assumption(message, f'write "architectures": ["{default.names[0]}"] if it is one'))
    return named or default


def _assumption(message: str, repair: str) -> Problem:
    return Problem(where="server", kind="assumed", severity="note", message=message, repair=repair)
