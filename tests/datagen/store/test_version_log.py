"""Who won? Whatever the door says, the record that is there decides."""

from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import AlreadyExistsError, DoorError, StoreError
from datagen.store.local import LocalDoor
from datagen.store.version_log import VersionLog
from schemas.records import VersionRecord
from tests.builders import tiny_schema

SCHEMA = tiny_schema()


class Scripted(LocalDoor):
    """A door whose creates of version records go as told: stored or not, and with which answer."""

    def __init__(self, root: Path, script: list[tuple[bool, StoreError | None]]) -> None:
        super().__init__(root)
        self.script = script

    def create(self, key: str, data: bytes) -> None:
        stored, answer = self.script.pop(0) if self.script else (True, None)
        if stored:
            super().create(key, data)
        if answer is not None:
            raise answer


def log_on(root: Path, *script: tuple[bool, StoreError | None]) -> VersionLog:
    dataset = Dataset.create(LocalDoor(root), "demo", SCHEMA, exist_ok=True)
    return VersionLog(Scripted(root, list(script)), dataset.layout, dataset.record.dataset_id)


def record(root: Path, commit: str, number: int = 1) -> VersionRecord:
    dataset = Dataset.open(LocalDoor(root), "demo")
    return VersionRecord(
        number=number,
        parent=number - 1 or None,
        parent_digest="8" * 64 if number > 1 else None,
        operation="append",
        commit_id=commit * 32,
        created_at=dataset.record.created_at,
        dataset_id=dataset.record.dataset_id,
        schema_fingerprint=SCHEMA.fingerprint,
        run_id=None,
        n_samples=0,
        n_tokens=0,
        size_bytes=0,
        index=(),
    ).sealed()


LOST = DoorError("the connection was lost")
DENIED = AlreadyExistsError("it exists")


@pytest.mark.parametrize(
    "script",
    [
        [(True, None)],
        [(True, LOST)],
        [(True, DENIED)],
        [(False, LOST), (True, None)],
        [(False, DENIED), (True, None)],
        [(False, LOST), (True, LOST)],
        [(False, LOST), (False, LOST), (True, DENIED)],
    ],
    ids=["stored", "stored-lost", "stored-denied", "lost", "denied", "lost-twice", "lost-lost-denied"],
)
def test_mine_has_won(tmp_path: Path, script: list[tuple[bool, StoreError | None]]) -> None:
    log = log_on(tmp_path, *script)
    mine = record(tmp_path, "a")
    assert log.propose(mine) == mine
    assert log.read(1) == mine
    assert log.newest() == 1


@pytest.mark.parametrize("answer", [LOST, DENIED])
def test_anothers_has_won(tmp_path: Path, answer: StoreError) -> None:
    log = log_on(tmp_path, (False, answer))
    theirs = record(tmp_path, "b")
    LocalDoor(tmp_path).create("demo/versions/00000001.json", theirs.to_json())
    assert log.propose(record(tmp_path, "a")) == theirs


def test_a_door_that_stores_nothing_gives_its_last_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_on(tmp_path, *[(False, LOST)] * 20)
    monkeypatch.setattr("datagen.store.version_log._FIRST_WAIT_SECONDS", 0)
    with pytest.raises(DoorError, match="the connection was lost"):
        log.propose(record(tmp_path, "a"))
    assert log.newest() == 0


@pytest.mark.parametrize("newest", [1, 2, 3, 7, 8, 9, 33])
def test_the_newest_is_found_without_a_hint(tmp_path: Path, newest: int) -> None:
    log = log_on(tmp_path)
    for number in range(1, newest + 1):
        LocalDoor(tmp_path).create(
            f"demo/versions/{number:08d}.json", record(tmp_path, "a", number).to_json()
        )
    assert log.newest() == newest
    log.point_at(max(1, newest - 3))
    assert log.newest() == newest
