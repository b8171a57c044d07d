"""gc: nothing that a kept version names is ever removed, and nothing before its grace period is over."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from datagen.store.bucket import BucketDoor
from datagen.store.dataset import Dataset
from datagen.store.errors import ConflictError, NotFoundError
from datagen.store.gc import condemn, sweep
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.verify import verify
from schemas.records import VersionRecord
from tests.builders import tiny_schema
from tests.datagen.store.bucket_server import needs_moto
from tests.datagen.store.real_parts import commit_samples, samples_of, write_part

SCHEMA = tiny_schema()
NOW, WEEK = timedelta(0), timedelta(days=7)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Three versions: two samples, a third one, and the first two dropped."""
    made = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    first = samples_of(SCHEMA, [3, 4])
    commit_samples(made, SCHEMA, first)
    commit_samples(made, SCHEMA, samples_of(SCHEMA, [5], seed=9))
    made.drop([sample.sample_id for sample in first])
    return made


def first_part(dataset: Dataset) -> str:
    (part,) = dataset.snapshot(1).index.parts()
    return part


def test_a_kept_version_keeps_its_parts(dataset: Dataset) -> None:
    record, garbage = condemn(dataset, keep_versions=3, grace=NOW)
    assert garbage.parts == ()
    assert record is not None
    assert record.number == 3
    with pytest.raises(ValueError, match="at least the newest"):
        condemn(dataset, keep_versions=0, grace=NOW)


def test_condemned_then_swept(dataset: Dataset) -> None:
    part = first_part(dataset)
    _, planned = condemn(dataset, keep_versions=1, grace=WEEK, dry_run=True)
    record, garbage = condemn(dataset, keep_versions=1, grace=WEEK)
    assert planned == garbage
    assert garbage.parts == (part,)
    assert record is not None
    assert (record.number, record.operation) == (4, "condemn")
    assert [condemned.part_id for condemned in record.condemned] == [part]
    assert sweep(dataset, grace=WEEK).parts == ()
    assert len(dataset.snapshot(1).read(dataset.snapshot(1).sample_ids[0]).tokens["input_ids"])
    assert sweep(dataset, grace=NOW, dry_run=True).parts == (part,)
    swept = sweep(dataset, grace=NOW)
    assert (swept.parts, swept.size_bytes) == ((part,), garbage.size_bytes)
    assert not list(dataset.door.entries(dataset.layout.part(part)))
    assert sweep(dataset, grace=NOW).parts == ()
    report = verify(dataset)
    assert report.ok
    assert [note.kind for note in report.notes] == ["condemned"]
    assert not verify(dataset, 1).ok
    assert verify(dataset, 4).problems == []


def test_a_committer_that_holds_a_condemned_part_fails(dataset: Dataset) -> None:
    other = Dataset.open(dataset.door, "demo")
    orphan = write_part(dataset, SCHEMA, samples_of(SCHEMA, [6], seed=20))
    _, garbage = condemn(dataset, keep_versions=3, grace=NOW)
    assert garbage.parts == (orphan.record.part_id,)
    with pytest.raises(ConflictError, match="condemns"):
        other.commit([orphan], [], run_id="run")
    # It stays condemned in every later version.
    commit_samples(dataset, SCHEMA, samples_of(SCHEMA, [6], seed=20))
    with pytest.raises(ConflictError, match="condemns"):
        other.commit([orphan], [], run_id="run")


def test_what_was_committed_meanwhile_is_spared(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = write_part(dataset, SCHEMA, samples_of(SCHEMA, [6], seed=20))
    propose = dataset.log.propose
    raced: list[VersionRecord] = []

    def beaten_once(record: VersionRecord) -> VersionRecord:
        if not raced:
            raced.append(Dataset.open(dataset.door, "demo").commit([orphan], [], run_id="rival"))
        return propose(record)

    monkeypatch.setattr(dataset.log, "propose", beaten_once)
    record, garbage = condemn(dataset, keep_versions=1, grace=NOW)
    assert raced
    assert record is not None
    assert garbage.parts == (first_part(dataset),)
    assert orphan.record.part_id in dataset.snapshot().index.parts()


def test_young_orphans_are_left(dataset: Dataset) -> None:
    orphan = write_part(dataset, SCHEMA, samples_of(SCHEMA, [6], seed=20))
    writer = PartWriter(dataset.door, "demo", SCHEMA, "run")
    writer.add(samples_of(SCHEMA, [6], seed=21)[0])
    _, garbage = condemn(dataset, keep_versions=3, grace=WEEK)
    assert garbage.parts == ()
    assert {note.where.rpartition("/")[2] for note in garbage.left} == {orphan.record.part_id, writer.part_id}
    _, garbage = condemn(dataset, keep_versions=3, grace=NOW)
    writer.abort()
    assert set(garbage.parts) == {orphan.record.part_id, writer.part_id}


def test_litter_is_swept_when_it_is_old(dataset: Dataset, tmp_path: Path) -> None:
    litter = tmp_path / "demo/versions/.tmp-00"
    litter.write_bytes(b"x")
    assert sweep(dataset, grace=WEEK).litter == ()
    month_ago = time.time() - 30 * 86400
    os.utime(litter, (month_ago, month_ago))
    assert sweep(dataset, grace=WEEK).litter == ("demo/versions/.tmp-00",)
    assert not litter.exists()


def test_a_version_of_swept_parts_cannot_be_rolled_back_to(dataset: Dataset) -> None:
    _, garbage = condemn(dataset, keep_versions=1, grace=NOW)
    with pytest.raises(ConflictError, match="cannot be rolled back"):
        dataset.rollback(1)
    (other,) = dataset.snapshot().sample_ids
    dataset.drop([other])
    back = dataset.rollback(3)
    assert (back.number, [part.part_id for part in back.condemned]) == (6, list(garbage.parts))


def test_a_dataset_without_versions_has_no_garbage(tmp_path: Path) -> None:
    empty = Dataset.create(LocalDoor(tmp_path), "empty", SCHEMA, exist_ok=False)
    with pytest.raises(NotFoundError):
        condemn(empty, keep_versions=1, grace=NOW)
    with pytest.raises(NotFoundError):
        sweep(empty, grace=NOW)


@needs_moto
def test_a_bucket_knows_how_old_an_unfinished_part_is(door: BucketDoor) -> None:
    made = Dataset.create(door, "demo", SCHEMA, exist_ok=False)
    commit_samples(made, SCHEMA, samples_of(SCHEMA, [3]))
    door.create(f"{made.layout.part('0' * 32)}/data.zarr/final/c/0/0", b"cut off")
    door.create("demo/.tmp-0123", b"")
    _, garbage = condemn(made, keep_versions=1, grace=WEEK)
    assert garbage.parts == ()
    assert "within the grace period" in garbage.left[0].message
    _, garbage = condemn(made, keep_versions=1, grace=NOW)
    assert garbage.parts == ("0" * 32,)
    swept = sweep(made, grace=NOW)
    assert (swept.parts, swept.litter) == (garbage.parts, ("demo/.tmp-0123",))
    assert verify(made).ok
