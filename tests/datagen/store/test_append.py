"""What an append leaves out where prompts are answered: what came to the version first by another way."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from datagen.store.closed_part import ClosedPart
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from tests.builders import tiny_schema
from tests.datagen.store.fake_parts import fake_id, fake_part

SCHEMA = tiny_schema()


def part_of(dataset: Dataset, samples: Sequence[int], prompts: Sequence[int]) -> ClosedPart:
    """Return a closed part whose samples answer these prompts."""
    part = fake_part(dataset.door, "demo", SCHEMA, samples)
    column = pa.array([bytes.fromhex(fake_id(1000 + prompt)) for prompt in prompts], pa.binary(32))
    at = part.samples.schema.get_field_index("prompt_id")
    return replace(part, samples=part.samples.set_column(at, part.samples.schema.field(at), column))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)


def commit(dataset: Dataset, parts: list[ClosedPart], *, together: bool) -> None:
    for some in [parts] if together else [[part] for part in parts]:
        dataset.commit(some, [], run_id="run")


@pytest.mark.parametrize("together", [True, False])
def test_the_same_answer_to_another_prompt_is_recorded(dataset: Dataset, together: bool) -> None:
    parts = [part_of(dataset, [1, 2], [1, 2]), part_of(dataset, [1, 3], [7, 3])]
    commit(dataset, parts, together=together)
    snapshot = dataset.snapshot()
    assert set(snapshot.sample_ids) == {fake_id(number) for number in (1, 2, 3)}
    (row,) = snapshot.quarantined()
    assert (row.reason, row.sample_id, row.prompt_id) == ("duplicate_answer", fake_id(1), fake_id(1007))
    assert "conversation-1" in row.detail


@pytest.mark.parametrize("together", [True, False])
def test_another_answer_to_the_same_prompt_is_left_out(dataset: Dataset, together: bool) -> None:
    """Two drivers may have asked the same: who commits first has answered it."""
    parts = [part_of(dataset, [1, 2], [1, 2]), part_of(dataset, [8, 9, 3], [1, 2, 3])]
    commit(dataset, parts, together=together)
    snapshot = dataset.snapshot()
    assert set(snapshot.sample_ids) == {fake_id(number) for number in (1, 2, 3)}
    assert snapshot.quarantined() == []


def test_committed_again_it_changes_nothing(dataset: Dataset) -> None:
    parts = [part_of(dataset, [1, 2], [1, 2]), part_of(dataset, [1, 8, 3], [7, 2, 3])]
    commit(dataset, parts, together=True)
    before = dataset.latest()
    commit(dataset, parts, together=False)
    assert dataset.latest() == before
