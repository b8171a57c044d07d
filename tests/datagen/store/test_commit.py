"""Commits: who won, what is left out; nothing is lost or doubled whoever races and whatever fails."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    DoorError,
    NotFoundError,
    RefusedError,
)
from datagen.store.local import LocalDoor
from datagen.store.rewrite import Drop
from datagen.store.sample_data import SampleData
from datagen.store.verify import verify
from schemas.records import SplitRule, VersionRecord
from tests.builders import random_sample, tiny_schema, tiny_target
from tests.datagen.store.fake_parts import failed, fake_id, fake_part
from tests.datagen.store.flaky_door import FlakyDoor
from tests.datagen.store.real_parts import commit_samples

SCHEMA = tiny_schema()


def new_dataset(root: Path | str) -> Dataset:
    return Dataset.create(LocalDoor(root), "demo", SCHEMA, exist_ok=True)


def add(dataset: Dataset, numbers: Sequence[int], *, trained: int = 1) -> int:
    part = fake_part(dataset.door, dataset.name, SCHEMA, numbers, trained=trained)
    return dataset.commit([part], [], run_id="run").number


def held(dataset: Dataset, version: int | None = None) -> list[str]:
    return list(dataset.snapshot(version).sample_ids)


def ids(numbers: Sequence[int]) -> list[str]:
    return sorted(fake_id(number) for number in numbers)


def test_the_first_commit_is_version_one(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    assert dataset.latest() is None
    with pytest.raises(NotFoundError, match="nothing is committed yet"):
        dataset.snapshot()
    assert add(dataset, range(3)) == 1
    record = Dataset.open(LocalDoor(tmp_path), "demo").version(1)
    assert (record.n_samples, record.n_tokens, record.parent, record.operation) == (3, 6, None, "append")
    assert record.digest == record.content_digest()
    assert record.size_bytes == 300


def test_a_sample_is_committed_once(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, range(5))
    assert add(dataset, range(3, 8)) == 2
    assert held(dataset) == ids(range(8))
    assert held(dataset, 1) == ids(range(5))
    assert dataset.snapshot().quarantined() == []


def test_committing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    part = fake_part(dataset.door, "demo", SCHEMA, range(4))
    first = dataset.commit([part], [failed(1)], run_id="run")
    assert dataset.commit([part], [failed(1)], run_id="run") == first
    assert new_dataset(tmp_path).commit([part, part], [], run_id="other") == first


def test_nothing_to_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="nothing to commit"):
        new_dataset(tmp_path).commit([], [], run_id="run")


def test_quarantine_alone_makes_a_version(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    record = dataset.commit([], [failed(1), failed(1), failed(2)], run_id="run")
    assert (record.n_samples, record.n_quarantined) == (0, 2)
    again = new_dataset(tmp_path)
    for number in range(20):
        record = again.commit([], [failed(1), failed(number)], run_id="run")
    assert record.n_quarantined == 20
    sources = {row.source for row in again.snapshot().quarantined()}
    assert sources == {f"prompts.jsonl:{number}" for number in range(20)}


@pytest.mark.parametrize("together", [True, False])
def test_another_mask_is_quarantined(tmp_path: Path, together: bool) -> None:
    dataset = new_dataset(tmp_path)
    parts = [fake_part(dataset.door, "demo", SCHEMA, [1], trained=trained) for trained in (1, 0)]
    if not together:
        dataset.commit(parts[:1], [], run_id="run")
        parts = parts[1:]
    dataset.commit(parts, [], run_id="run")
    (row,) = dataset.snapshot().quarantined()
    assert (row.reason, row.sample_id, row.conversation_id) == ("mask_conflict", fake_id(1), "conversation-1")
    assert dataset.snapshot().location(fake_id(1)).n_trained == 1


def test_commits_cost_what_is_new(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    for number in range(70):
        add(dataset, [number])
    record = dataset.version(70)
    assert [file.n_rows for file in record.index] == [64, 1, 1, 1, 1, 1, 1]
    assert held(dataset) == ids(range(70))


def test_drop_makes_a_version_and_leaves_the_older_one(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, range(3))
    add(dataset, range(3, 6))
    dropped = dataset.drop([fake_id(0), fake_id(1), fake_id(2)])
    assert (dropped.number, dropped.operation, dropped.n_samples) == (3, "drop", 3)
    assert dropped.size_bytes == 300
    assert held(dataset) == ids(range(3, 6))
    assert held(dataset, 2) == ids(range(6))
    with pytest.raises(NotFoundError, match="cannot be dropped"):
        dataset.drop([fake_id(0)])


def test_the_last_sample_can_be_dropped(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, [1])
    assert dataset.drop([fake_id(1)]).n_samples == 0
    assert held(dataset) == []
    assert add(dataset, [1]) == 3


def test_rollback_and_split_are_versions(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, range(3))
    add(dataset, range(3, 6))
    rule = SplitRule(name="half", seed=1, fractions=(("train", 0.5), ("eval", 0.5)))
    assert dataset.split([rule]).splits == (rule,)
    assert dataset.split([rule]).number == 3
    back = dataset.rollback(1)
    assert (back.number, back.operation, back.parent) == (4, "rollback", 3)
    assert held(dataset) == ids(range(3))
    assert dataset.rollback(4).number == 4


def test_a_missing_version_says_which_there_are(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    with pytest.raises(NotFoundError, match="nothing is committed"):
        dataset.version(1)
    add(dataset, [1])
    with pytest.raises(NotFoundError, match="expected version 1 to 1, got 7"):
        dataset.version(7)


def test_create_and_open(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    assert new_dataset(tmp_path).record == dataset.record
    with pytest.raises(AlreadyExistsError):
        Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    with pytest.raises(NotFoundError, match="there are: demo"):
        Dataset.open(LocalDoor(tmp_path), "dem")
    with pytest.raises(NotFoundError, match="no dataset can be called"):
        Dataset.open(LocalDoor(tmp_path), "../demo")


def test_another_schema_is_refused_with_its_differences(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    other = tiny_schema(("embed",), target=tiny_target(n_layers=5))
    stray = fake_part(dataset.door, "demo", other, [1])
    add(dataset, [1])
    with pytest.raises(ConflictError) as caught:
        Dataset.create(LocalDoor(tmp_path), "demo", other, exist_ok=True)
    assert {problem.where for problem in caught.value.problems} == {
        "schema.target.n_layers",
        "schema.tensors.final",
        "schema.tensors.layer2",
    }
    dataset.door.create(dataset.layout.schema(other.fingerprint), other.to_json())
    with pytest.raises(ConflictError, match="expected schema"):
        dataset.commit([stray], [], run_id="run")


def test_a_part_that_changed_since_it_was_closed_is_refused(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    gone, changed = (fake_part(dataset.door, "demo", SCHEMA, [number]) for number in (1, 2))
    dataset.door.delete(dataset.layout.part_record(gone.record.part_id))
    with (tmp_path / dataset.layout.part_record(changed.record.part_id)).open("ab") as file:
        file.write(b" ")
    with pytest.raises(ConflictError) as caught:
        dataset.commit([gone, changed], [], run_id="run")
    assert len(caught.value.problems) == 2
    assert dataset.latest() is None


@pytest.mark.parametrize("hint", [None, b"1\n", b"", b"rubbish", b"999\n", b"0\n"])
def test_the_hint_is_only_a_hint(tmp_path: Path, hint: bytes | None) -> None:
    dataset = new_dataset(tmp_path)
    for number in range(5):
        add(dataset, [number])
    path = tmp_path / dataset.layout.latest
    assert path.read_bytes() == b"5\n"
    path.unlink()
    if hint is not None:
        path.write_bytes(hint)
    latest = Dataset.open(LocalDoor(tmp_path), "demo").latest()
    assert latest is not None
    assert latest.number == 5


def test_a_changed_version_record_is_named(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, [1])
    path = tmp_path / dataset.layout.version(1)
    path.write_bytes(path.read_bytes().replace(b'"n_samples":1', b'"n_samples":2'))
    with pytest.raises(CorruptError, match=r"versions/00000001\.json.*digest"):
        Dataset.open(LocalDoor(tmp_path), "demo").snapshot()


def test_a_record_moved_to_another_number_is_named(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, [1])
    first = tmp_path / dataset.layout.version(1)
    (first.parent / "00000002.json").write_bytes(first.read_bytes())
    with pytest.raises(CorruptError, match="expected number 2, got 1"):
        Dataset.open(LocalDoor(tmp_path), "demo").latest()


@pytest.mark.parametrize("where", ["versions/", "index/", "quarantine/", "/"])
@pytest.mark.parametrize("seed", range(4))
def test_a_door_that_fails_loses_and_doubles_nothing(tmp_path: Path, where: str, seed: int) -> None:
    new_dataset(tmp_path)
    door = FlakyDoor(str(tmp_path), where, 0.4, seed)
    dataset = Dataset.open(door, "demo")
    rival = new_dataset(tmp_path)
    for number in range(8):
        part = fake_part(rival.door, "demo", SCHEMA, range(number * 2, number * 2 + 3))
        while True:
            try:
                dataset.commit([part], [failed(number)], run_id="run")
                break
            except DoorError:
                continue
        add(rival, [100 + number])
    assert door.n_failures > 0
    assert held(rival) == ids([*range(17), *range(100, 108)])
    latest = rival.latest()
    assert latest is not None
    assert [rival.version(n).number for n in range(1, latest.number + 1)] == list(range(1, 17))
    assert latest.n_quarantined == 8


def test_a_door_that_never_stores_gives_its_error(tmp_path: Path) -> None:
    new_dataset(tmp_path)

    class FullDoor(LocalDoor):
        def create(self, key: str, data: bytes) -> None:
            raise DoorError("the disk is full")

    dataset = Dataset.open(FullDoor(tmp_path), "demo")
    part = fake_part(LocalDoor(tmp_path), "demo", SCHEMA, [1])
    with pytest.raises(DoorError, match="the disk is full"):
        dataset.commit([part], [], run_id="run")
    assert dataset.latest() is None


def test_threads_with_a_handle_each_and_with_one(tmp_path: Path) -> None:
    shared = new_dataset(tmp_path)

    def work(worker: int) -> None:
        dataset = shared if worker % 2 else Dataset.open(LocalDoor(tmp_path), "demo")
        for step in range(4):
            # Neighbours make the same samples: each is to be there once.
            add(dataset, range(worker * 10 + step * 5, worker * 10 + step * 5 + 8))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert held(Dataset.open(LocalDoor(tmp_path), "demo")) == ids(range(93))


def _commit_many(root: str, worker: int) -> None:
    dataset = Dataset.open(LocalDoor(root), "demo")
    for step in range(5):
        add(dataset, [worker * 1000 + step, 10_000 + step])


def test_processes_that_race(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    workers = [context.Process(target=_commit_many, args=(str(tmp_path), number)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    expected = [number * 1000 + step for number in range(8) for step in range(5)]
    assert held(dataset) == ids([*expected, *range(10_000, 10_005)])
    latest = dataset.latest()
    assert latest is not None
    assert latest.number == 40
    assert sorted(path.name for path in (tmp_path / "demo/versions").iterdir()) == [
        f"{number:08d}.json" for number in range(1, 41)
    ]


COMMIT_FOR_EVER = """
import sys
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.sample_data import SampleData
from datagen.store.verify import verify
from tests.datagen.store.test_commit import SCHEMA, numbered
from tests.datagen.store.real_parts import commit_samples
dataset = Dataset.open(LocalDoor(sys.argv[1]), "demo")
number = int(sys.argv[2])
while True:
    commit_samples(dataset, SCHEMA, [numbered(number), numbered(number + 1)])
    print(number, flush=True)
    number += 1
"""


def numbered(number: int) -> SampleData:
    """Return the sample of that number."""
    return random_sample(SCHEMA, 10 + number % 90, number)


def test_kill_nine_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    rng = random.Random(7)
    number = 0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", COMMIT_FOR_EVER, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert child.stdout is not None
        done = [int(child.stdout.readline())]
        time.sleep(rng.random() * 0.2)
        child.send_signal(signal.SIGKILL)
        done += [int(line) for line in child.stdout.read().split()]
        child.stdout.close()
        child.wait()
        number = done[-1] + 1
        found = held(Dataset.open(LocalDoor(tmp_path), "demo"))
        expected = [numbered(k).sample_id for k in range(number + 2)]
        # One commit may have been stored whose acknowledgement was cut off.
        assert found in (sorted(expected[:-1]), sorted(expected))
        assert verify(dataset).errors == []
    commit_samples(dataset, SCHEMA, [numbered(10**6)])
    assert verify(dataset).errors == []


def test_a_change_that_expects_another_version_is_refused_naming_both(tmp_path: Path) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, range(3))
    add(dataset, range(3, 6))
    drop = Drop(frozenset([fake_id(0)]), dataset.part_bytes)
    with pytest.raises(
        ConflictError, match=r"expected version 1 as the newest, got 2, made by append"
    ) as caught:
        dataset.change(drop, expected=1)
    assert (caught.value.problems[0].expected, caught.value.problems[0].got) == ("1", "2")
    assert dataset.log.newest() == 2
    record, changed = dataset.change(drop, expected=2)
    assert (record.number, changed) == (3, True)
    # What is asked for is so already: nothing to refuse, nothing to change.
    record, changed = dataset.change(drop, expected=2)
    assert (record.number, changed) == (3, False)


def test_no_version_comes_between_the_look_and_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = new_dataset(tmp_path)
    add(dataset, range(3))
    propose = dataset.log.propose

    def beaten(record: VersionRecord) -> VersionRecord:
        monkeypatch.undo()
        add(new_dataset(tmp_path), range(3, 6))
        return propose(record)

    monkeypatch.setattr(dataset.log, "propose", beaten)
    with pytest.raises(ConflictError, match=r"expected version 1 as the newest, got 2"):
        dataset.change(Drop(frozenset([fake_id(0)]), dataset.part_bytes), expected=1)
    assert held(dataset) == ids(range(6))
