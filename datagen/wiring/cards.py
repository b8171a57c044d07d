"""Cards as files: read with every problem, and written once; a card that lies there is never written over."""

import json
from pathlib import Path

from datagen.errors import ConfigError
from datagen.store.errors import AlreadyExistsError, StoreError
from datagen.store.local import LocalDoor
from schemas.card import CARD_FILE, Card
from schemas.consumers.resolution import short
from schemas.errors import RecordError, StrataError
from schemas.problem import Problem

MAX_CARD_BYTES = 1 << 20
REPAIR = (
    "take the card as it was saved, or write it anew: "
    "`strata check --dataset ROOT/DATASET --trainer NAME --save-card FILE`"
)


def read_card(file: Path) -> Card:
    """Read a card, or the one in a folder; raises `ConfigError` or `RecordError` with every problem."""
    path = file / CARD_FILE if file.is_dir() else file
    try:
        size = path.stat().st_size
        if size > MAX_CARD_BYTES:
            raise ConfigError(f"{path}: expected a card, got {size:,} bytes: too large for one")
        data = path.read_bytes()
        _check_format(data, path)
        return Card.from_json(data, str(path))
    except RecordError as error:
        raise RecordError(error.headline, _repaired(error, REPAIR)) from error
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: expected a card, got no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected a card, got: {str(error)[:200]}") from error


def _check_format(data: bytes, path: Path) -> None:
    """Raise `RecordError` for JSON of another kind, which would be told field by field at length."""
    content = json.loads(data)
    said = content.get("format") if isinstance(content, dict) else None
    expected = Card.model_fields["format"].default
    if said != expected:
        message = f"expected {expected!r}, got {'no format' if said is None else short(said)}"
        problem = Problem(where="format", kind="format", message=message, repair=REPAIR)
        raise RecordError(f"{path} is not a valid Card", [problem])


def write_card(file: Path, card: Card) -> Path:
    """Write a card to a file, or into a folder, and return where it lies; one that is equal may be there.

    Raises `ConfigError` where another card, or anything else, lies there.
    """
    path = file / CARD_FILE if file.is_dir() else file
    try:
        LocalDoor(path.parent).create(path.name, card.to_json())
    except AlreadyExistsError as error:
        if _is(path, card):
            return path
        raise ConfigError(
            f"{path}: expected no file, or this very card, got another; give another name, or remove it"
        ) from error
    except StoreError as error:
        raise ConfigError(
            error.headline, _repaired(error, "give a file in a folder that you can write")
        ) from error
    return path


def _repaired(error: StrataError, repair: str) -> list[Problem]:
    return [problem.model_copy(update={"repair": problem.repair or repair}) for problem in error.problems]


def _is(path: Path, card: Card) -> bool:
    try:
        return read_card(path) == card
    except (ConfigError, RecordError):
        return False
