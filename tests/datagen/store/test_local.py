"""The local door: durable, create-exclusive, and every failure says what to do."""

import errno
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from datagen.store import local
from datagen.store.errors import AlreadyExistsError, CorruptError, DoorError, NotFoundError
from datagen.store.keys import checked_key, is_litter
from datagen.store.local import LocalDoor


@pytest.fixture
def door(tmp_path: Path) -> LocalDoor:
    return LocalDoor(tmp_path / "new" / "root")


def test_create_then_read(door: LocalDoor) -> None:
    door.create("demo/versions/00000001.json", b"one")
    assert door.read("demo/versions/00000001.json") == b"one"
    assert door.size("demo/versions/00000001.json") == 3
    assert [entry.key for entry in door.entries("demo")] == ["demo/versions/00000001.json"]


def test_create_refuses_a_key_that_is_there(door: LocalDoor) -> None:
    door.create("demo/x", b"one")
    with pytest.raises(AlreadyExistsError, match="demo/x"):
        door.create("demo/x", b"two")
    assert door.read("demo/x") == b"one"
    assert [entry.key for entry in door.entries("")] == ["demo/x"]


def test_one_of_many_creators_wins(door: LocalDoor) -> None:
    outcomes: list[int | None] = []

    def attempt(number: int) -> None:
        try:
            door.create("demo/versions/1", str(number).encode())
            outcomes.append(number)
        except AlreadyExistsError:
            outcomes.append(None)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number in outcomes if number is not None]
    assert len(outcomes) == 16
    assert len(winners) == 1
    assert door.read("demo/versions/1") == str(winners[0]).encode()


def test_stream_then_read_a_range(door: LocalDoor) -> None:
    with door.open_writer("demo/parts/a/c/0") as writer:
        buffer = bytearray(b"abcd")
        writer.write(buffer)
        buffer[:] = b"efgh"
        writer.write(memoryview(buffer))
    door.settle(["demo/parts/a/c/0"])
    into = np.zeros(4, np.uint8)
    door.read_into("demo/parts/a/c/0", 2, into)
    assert into.tobytes() == b"cdef"


def test_what_is_read_in_part_is_read_on(door: LocalDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    door.create("demo/x", b"0123456789")
    preadv = os.preadv

    def reading_three(fd: int, buffers: list[memoryview], offset: int) -> int:
        return preadv(fd, [buffers[0][:3]], offset)

    monkeypatch.setattr(os, "preadv", reading_three)
    into = np.zeros(8, np.uint8)
    door.read_into("demo/x", 1, into)
    assert into.tobytes() == b"12345678"
    with pytest.raises(CorruptError, match=r"demo/x: expected 8 bytes from byte 5, got 5"):
        door.read_into("demo/x", 5, into)


def test_a_range_past_the_end_is_an_error_that_names_the_file(door: LocalDoor) -> None:
    door.create("demo/x", b"0123")
    with pytest.raises(CorruptError, match=r"demo/x: expected 4 bytes from byte 2, got 2"):
        door.read_into("demo/x", 2, np.zeros(4, np.uint8))


def test_an_aborted_stream_is_gone(door: LocalDoor) -> None:
    def stop_half_way() -> None:
        with door.open_writer("demo/x") as writer:
            writer.write(b"0123")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop_half_way()
    assert not door.exists("demo/x")


def test_a_stream_never_goes_over_another(door: LocalDoor) -> None:
    door.open_writer("demo/x").close()
    with pytest.raises(AlreadyExistsError, match="demo/x"):
        door.open_writer("demo/x")


@pytest.mark.parametrize(
    "read",
    [
        lambda door: door.read("demo/none"),
        lambda door: door.size("demo/none"),
        lambda door: door.read_into("demo/none", 0, np.zeros(1, np.uint8)),
    ],
    ids=["read", "size", "read_into"],
)
def test_a_missing_key_is_named(door: LocalDoor, read: Callable[[LocalDoor], object]) -> None:
    with pytest.raises(NotFoundError, match="demo/none"):
        read(door)
    assert not door.exists("demo/none")


@pytest.mark.parametrize("key", ["", "/etc/passwd", "a/../b", "..", "a//b", "./a", "a/", "a\0b"])
def test_what_is_not_a_key_is_refused(door: LocalDoor, key: str) -> None:
    with pytest.raises(DoorError, match="not a key"):
        checked_key(key)
    with pytest.raises(DoorError, match="not a key"):
        door.create(key, b"")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, r"got [\d,]+ bytes free: the disk is full \(free some space"),
        (errno.EDQUOT, "the quota is used up"),
        (errno.EACCES, "demo: expected to write here, got: permission denied"),
        (errno.EROFS, "read-only file system"),
        (errno.EIO, "dmesg"),
    ],
)
def test_a_failing_disk_says_what_to_do(
    door: LocalDoor, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    door.create("demo/there", b"")
    monkeypatch.setattr(local, "write_all", fail)
    with pytest.raises(DoorError, match=said):
        door.create("demo/x", b"data")
    with pytest.raises(DoorError, match=said), door.open_writer("demo/y") as writer:
        writer.write(b"data")
    assert [entry.key for entry in door.entries("demo")] == ["demo/there"]


def test_what_a_killed_create_leaves_is_listed_as_litter_and_can_be_deleted(
    door: LocalDoor, tmp_path: Path
) -> None:
    door.create("demo/x", b"")
    left = tmp_path / "new" / "root" / "demo" / ".tmp-00ff"
    left.write_bytes(b"torn")
    assert [entry.key for entry in door.entries("demo") if is_litter(entry.key)] == ["demo/.tmp-00ff"]
    door.delete("demo/.tmp-00ff")
    assert [entry.key for entry in door.entries("demo")] == ["demo/x"]


def test_delete_removes_the_folders_it_empties_and_no_other(door: LocalDoor) -> None:
    door.create("demo/parts/a/b/x", b"")
    door.create("demo/parts/y", b"")
    door.delete("demo/parts/a/b/x")
    door.delete("demo/parts/a/b/x")
    path = door.local_path("demo/parts")
    assert path is not None
    assert sorted(os.listdir(path)) == ["y"]
    door.create("demo/parts/a/b/x", b"again")
    assert door.read("demo/parts/a/b/x") == b"again"


def test_every_new_folder_is_synced_up_to_above_the_root(
    door: LocalDoor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(local, "_sync_folder", lambda folder, must: synced.append(folder))
    door.create("demo/versions/1", b"")
    root = tmp_path / "new" / "root"
    assert synced == [str(p) for p in (root / "demo" / "versions", root / "demo", root, root.parent)]
    synced.clear()
    door.create("demo/versions/2", b"")
    assert synced == [str(root / "demo" / "versions")]


def test_hints_may_be_written_again(door: LocalDoor) -> None:
    door.put_hint("demo/latest", b"1")
    door.put_hint("demo/latest", b"2")
    assert door.read("demo/latest") == b"2"


def test_open_descriptors_are_bounded_and_closed(door: LocalDoor) -> None:
    into = np.zeros(1, np.uint8)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        door.put_hint(f"demo/{number}", b"x")
        door.read_into(f"demo/{number}", 0, into)
    assert len(os.listdir("/proc/self/fd")) - before <= 128
    door.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_door_pickles_as_its_root(door: LocalDoor) -> None:
    door.create("demo/x", b"here")
    assert pickle.loads(pickle.dumps(door)).read("demo/x") == b"here"


def test_free_bytes_of_a_root_not_made_yet(door: LocalDoor) -> None:
    free = door.free_bytes()
    assert free is not None
    assert free > 0


def test_a_root_that_can_be_written_has_no_problems_and_is_not_made(tmp_path: Path) -> None:
    assert LocalDoor(tmp_path / "new" / "root").write_problems("demo") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "dangling"])
def test_a_root_that_is_no_folder_is_told_beforehand(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (problem,) = LocalDoor(tmp_path / place).write_problems("demo")
    assert problem.where == str(tmp_path / place.partition("/")[0])
    assert problem.message.startswith("expected a folder, got a ")


def test_a_root_without_rights_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: False)
    (problem,) = LocalDoor(tmp_path / "new").write_problems("demo")
    assert (problem.where, problem.kind) == (str(tmp_path), "place")
    assert "permission denied" in problem.message


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"f_flag": os.ST_RDONLY}, "read-only file system"), ({"f_favail": 0}, "inodes are used up")],
    ids=["read-only", "inodes"],
)
def test_a_file_system_that_takes_nothing_is_told_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], told: str
) -> None:
    facts = {"f_flag": 0, "f_files": 10, "f_favail": 5, **changes}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**facts))
    (problem,) = LocalDoor(tmp_path).write_problems("demo")
    assert told in problem.message
