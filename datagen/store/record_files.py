"""JSON records behind a door: each created once, read whole and checked."""

from typing import TypeVar

from datagen.store.damage import corrupt
from datagen.store.door import Door
from datagen.store.errors import NotFoundError, StoreError
from schemas.errors import RecordError
from schemas.record import Record

R = TypeVar("R", bound=Record)


def read_record(kind: type[R], door: Door, key: str) -> R:
    """Read a record; raises `NotFoundError`, or `CorruptError` when it is not what it should be."""
    data = door.read(key)
    try:
        return kind.from_json(data, key)
    except RecordError as error:
        raise corrupt(key, "record", f"expected a {kind.__name__}, got: {error}") from error


def create_record(door: Door, key: str, record: Record) -> None:
    """Store a record once; storing the same one again is no error.

    Raises `AlreadyExistsError` when another is there, and the door's error when it cannot be stored.
    """
    data = record.to_json()
    try:
        door.create(key, data)
    except StoreError:
        # An error does not mean not stored, nor "already exists" that it is another's: look.
        try:
            there = door.read(key)
        except NotFoundError:
            there = b""
        if there != data:
            raise
        door.settle([key])
