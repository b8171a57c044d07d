"""Two versions compared: what plain sets of their samples say, page by page."""

from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from schemas.records import SplitRule
from service.errors import MalformedError
from service.served.changes import Comparison
from service.served.comparison import Pages, compare
from tests.builders import tiny_schema
from tests.datagen.store.fake_parts import failed, fake_id, fake_part

SCHEMA = tiny_schema(("final",))
RULE = SplitRule(name="r", seed=0, fractions=(("train", 0.5),))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Seven versions: appends by three runs, drops, a sample made again, a split, a rollback."""
    made = Dataset.create(LocalDoor(tmp_path_factory.mktemp("root")), "demo", SCHEMA, exist_ok=False)

    def add(numbers: range, run: str) -> None:
        part = fake_part(made.door, "demo", SCHEMA, numbers, run_id=run)
        made.commit([part], [failed(numbers.start, run)], run_id=run)

    add(range(40), "one")
    add(range(40, 55), "two")
    made.drop([fake_id(number) for number in range(0, 55, 11)])
    add(range(3), "three")
    made.split([RULE])
    made.rollback(2)
    made.drop([fake_id(7)])
    made.name_version("first", 1)
    return made


def test_any_two_versions_differ_as_their_samples_do(dataset: Dataset) -> None:
    newest = dataset.log.newest()
    snapshots = {number: dataset.snapshot(number) for number in range(1, newest + 1)}
    places = {
        number: {one.sample_id: (one.part_id, one.row_start, one.n_tokens) for one in snapshot.index}
        for number, snapshot in snapshots.items()
    }
    for first, before in places.items():
        for second, after in places.items():
            found = compare(dataset, str(first), str(second), Pages(limit=1000))
            assert list(found.added.sample_ids) == sorted(after.keys() - before.keys())
            assert list(found.removed.sample_ids) == sorted(before.keys() - after.keys())
            assert found.added.n_samples == len(after.keys() - before.keys())
            assert found.added.n_tokens == sum(after[one][2] for one in after.keys() - before.keys())
            assert found.removed.n_tokens == sum(before[one][2] for one in before.keys() - after.keys())
            kept = before.keys() & after.keys()
            assert found.n_kept == len(kept)
            assert found.n_remade == sum(before[one] != after[one] for one in kept)
            assert found.same_splits == (snapshots[first].version.splits == snapshots[second].version.splits)
            assert found.same_schema


def test_what_else_differs(dataset: Dataset) -> None:
    found = compare(dataset, "first", "4")
    assert (found.first.number, found.first.names, found.second.number) == (1, ("first",), 4)
    assert found.runs == ("two", "three")
    assert found.quarantined == {"empty": 1}
    assert compare(dataset, "4", "first").quarantined == {"empty": -1}
    assert found.n_remade == 1
    assert compare(dataset, "latest", "latest").second.number == dataset.log.newest()


def pages_of(dataset: Dataset, limit: int) -> list[Comparison]:
    found = [compare(dataset, "1", "3", Pages(limit))]
    while (cursor := found[-1].added.next_cursor) is not None and len(found) < 100:
        found.append(compare(dataset, "1", "3", Pages(limit, added_cursor=cursor)))
    return found


@pytest.mark.parametrize("limit", [1, 3, 13, 14, 15])
def test_pages_neither_skip_nor_repeat(dataset: Dataset, limit: int) -> None:
    whole = compare(dataset, "1", "3", Pages(1000)).added
    found = pages_of(dataset, limit)
    listed = [one for page in found for one in page.added.sample_ids]
    assert listed == list(whole.sample_ids)
    assert len(found) == -(-whole.n_samples // limit)
    assert all(page.added.n_samples == whole.n_samples for page in found)
    assert max(len(page.added.sample_ids) for page in found) <= limit


def test_counts_alone(dataset: Dataset) -> None:
    found = compare(dataset, "1", "3", Pages(limit=0))
    assert (found.added.sample_ids, found.added.next_cursor) == ((), None)
    assert found.added.n_samples


def test_what_cannot_be_compared_is_told_whole(dataset: Dataset) -> None:
    with pytest.raises(NotFoundError, match="expected version 1 to"):
        compare(dataset, "1", "99")
    with pytest.raises(NotFoundError, match="there are: first"):
        compare(dataset, "nobody", "1")
    with pytest.raises(MalformedError) as caught:
        compare(dataset, "1", "2", Pages(-1, "x", "AB" * 32))
    assert [problem.where for problem in caught.value.problems] == ["added_cursor", "removed_cursor", "limit"]


def test_an_empty_version_compares(tmp_path: Path) -> None:
    made = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    part = fake_part(made.door, "demo", SCHEMA, range(4))
    made.commit([part], [], run_id="run")
    made.drop([fake_id(number) for number in range(4)])
    found = compare(made, "1", "2")
    assert (found.removed.n_samples, found.n_kept, found.added.n_samples) == (4, 0, 0)
    assert compare(made, "2", "2").n_kept == 0
