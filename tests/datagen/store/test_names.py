"""Names of versions: one version each for ever, whoever names at once, and gc leaves what they name."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    DoorError,
    GoneError,
    NotFoundError,
)
from datagen.store.gc import condemn, sweep
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.builders import tiny_schema
from tests.datagen.store.flaky_door import FlakyDoor
from tests.datagen.store.real_parts import commit_samples, samples_of

SCHEMA = tiny_schema()
NOW = timedelta(0)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Three versions: two samples, a third one, and the first two dropped."""
    made = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    first = samples_of(SCHEMA, [3, 4])
    commit_samples(made, SCHEMA, first)
    commit_samples(made, SCHEMA, samples_of(SCHEMA, [5], seed=9))
    made.drop([sample.sample_id for sample in first])
    return made


def test_a_name_is_one_version_for_ever(dataset: Dataset) -> None:
    record, new = dataset.name_version("paper-v1", 2)
    assert (record.number, record.digest, new) == (2, dataset.version(2).digest, True)
    assert dataset.name_version("paper-v1", 2) == (record, False)
    with pytest.raises(AlreadyExistsError, match="taken by version 2") as caught:
        dataset.name_version("paper-v1", 3)
    assert (caught.value.problems[0].expected, caught.value.problems[0].got) == ("3", "2")
    assert dataset.snapshot("paper-v1").version.number == 2
    assert Dataset.open(dataset.door, "demo").names.all() == [record]
    assert dataset.number(None) is None
    assert verify(dataset).problems == []


def test_what_is_not_named_lists_the_names(dataset: Dataset) -> None:
    with pytest.raises(NotFoundError, match="got 'v1'; there are: none"):
        dataset.snapshot("v1")
    dataset.name_version("b", 1)
    dataset.name_version("a", 1)
    with pytest.raises(NotFoundError, match="there are: a, b"):
        dataset.number("v1")
    with pytest.raises(NotFoundError, match="no version 9"):
        dataset.name_version("c", 9)
    for name in ("latest", "../x", "3", ""):
        with pytest.raises(NotFoundError, match="no version can be called"):
            dataset.name_version(name, 1)
    assert dataset.names.keys() == ["a", "b"]


def test_of_many_that_name_at_once_one_wins(dataset: Dataset) -> None:
    def name(number: int) -> int:
        try:
            return Dataset.open(dataset.door, "demo").name_version("v", number)[0].number
        except AlreadyExistsError:
            return 0

    with ThreadPoolExecutor(6) as pool:
        won = set(pool.map(name, [1, 2, 3] * 4))
    assert won - {0} == {dataset.number("v")}


@pytest.mark.parametrize("seed", range(4))
def test_a_door_that_fails_leaves_a_name_whole_or_none(tmp_path: Path, dataset: Dataset, seed: int) -> None:
    flaky = Dataset.open(FlakyDoor(str(tmp_path), "names", 0.6, seed), "demo")
    for number in range(8):
        try:
            flaky.name_version(f"n{number}", 1 + number % 3)
        except DoorError:
            continue
    whole = Dataset.open(LocalDoor(tmp_path), "demo")
    assert all(name.number == 1 + int(name.name[1:]) % 3 for name in whole.names.all())
    assert verify(whole).ok


def test_gc_leaves_what_a_name_stands_for(dataset: Dataset) -> None:
    dataset.name_version("v", 1)
    assert condemn(dataset, keep_versions=1, grace=NOW)[1].parts == ()
    _, garbage = condemn(dataset, keep_versions=1, grace=NOW, keep_named=False)
    assert len(garbage.parts) == 1
    swept = sweep(dataset, grace=NOW)
    assert swept.parts == ()
    assert [(note.kind, "'v'" in note.message) for note in swept.left] == [("named", True)]
    snapshot = dataset.snapshot("v")
    assert len(snapshot.read(snapshot.sample_ids[0]).tokens["input_ids"])
    assert sweep(dataset, grace=NOW, keep_named=False).parts == garbage.parts
    with pytest.raises(ConflictError, match="cannot be given a name"):
        dataset.name_version("w", 1)
    assert dataset.names.keys() == ["v"]
    assert dataset.name_version("v", 1)[1] is False
    assert verify(dataset).ok


def test_swept_samples_are_gone_and_never_zeros(dataset: Dataset) -> None:
    old, warm = dataset.snapshot(1), dataset.snapshot(1)
    sample_id = old.sample_ids[0]
    warm.read(sample_id, names=("embed",))
    condemn(dataset, keep_versions=1, grace=NOW)
    assert len(old.read(sample_id).tokens["input_ids"])
    sweep(dataset, grace=NOW)
    for snapshot in (Dataset.open(dataset.door, "demo").snapshot(1), dataset.snapshot(1), warm):
        with pytest.raises(GoneError, match=r"gc condemned it on .* and swept it") as caught:
            snapshot.read(sample_id, names=("final",))
        assert caught.value.problems[0].repair == "read version 4, or make these samples again"
    assert dataset.condemned_parts(dataset.version(1)) == list(old.index.parts())[:1]
    assert dataset.condemned_parts(dataset.version(3)) == []


def test_a_part_that_is_missing_without_gc_is_damage(dataset: Dataset) -> None:
    snapshot = dataset.snapshot()
    (part,) = snapshot.index.parts()
    reader = snapshot.part(snapshot.index.at(0))
    assert reader.table is not None
    for entry in list(dataset.door.entries(dataset.layout.part(part))):
        dataset.door.delete(entry.key)
    with pytest.raises(CorruptError, match="cannot be read"):
        snapshot.read(snapshot.sample_ids[0], names=("final",))
    with pytest.raises(NotFoundError) as caught:
        dataset.snapshot().read(snapshot.sample_ids[0])
    assert not isinstance(caught.value, GoneError)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda data: data.replace(b'"number":1', b'"number":2'), "digest", id="number"),
        pytest.param(lambda data: data.replace(b'"number":1', b'"number":9'), "number", id="no-version"),
        pytest.param(lambda data: data.replace(b'"name":"v"', b'"name":"w"'), "name", id="name"),
        pytest.param(lambda data: data[:-1], "record", id="short"),
        pytest.param(lambda data: b"", "record", id="empty"),
    ],
)
def test_a_changed_name_is_told(dataset: Dataset, tmp_path: Path, change: object, told: str) -> None:
    dataset.name_version("v", 1)
    path = tmp_path / "demo/names/v.json"
    assert callable(change)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptError):
        dataset.number("v")
    report = verify(dataset)
    assert [problem.kind for problem in report.errors] == [told]
    assert "demo/names/v.json" in report.errors[0].where
    with pytest.raises(CorruptError):
        condemn(dataset, keep_versions=1, grace=NOW)


def test_a_stranger_among_the_names_is_told(dataset: Dataset, tmp_path: Path) -> None:
    dataset.name_version("v", 1)
    for name in ("latest.json", "v.txt", ".tmp-00"):
        (tmp_path / "demo/names" / name).write_bytes(b"{}")
    report = verify(dataset)
    assert [problem.where for problem in report.errors] == ["demo/names/latest.json", "demo/names/v.txt"]
    assert [note.kind for note in report.notes] == ["litter"]
