"""Commit histories: any interleaving of two drivers gives versions that never change, each sample once."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from schemas.records import VersionRecord
from tests.builders import tiny_schema
from tests.datagen.store.fake_parts import failed, fake_id, fake_part

SCHEMA = tiny_schema()
NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True)
HANDLES = st.integers(0, 1)


class Histories(RuleBasedStateMachine):
    """Two handles on one dataset, against the list of sets that the versions should be."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.handles = [self.open(), self.open()]
        self.versions: list[frozenset[str]] = []
        self.bytes: dict[str, bytes] = {}
        self.failures: set[str] = set()

    def open(self) -> Dataset:
        return Dataset.create(LocalDoor(self.root), "demo", SCHEMA, exist_ok=True)

    def teardown(self) -> None:
        reader = self.open()
        for number, expected in enumerate(self.versions, 1):
            snapshot = reader.snapshot(number)
            assert list(snapshot.sample_ids) == sorted(expected)
            assert snapshot.version.n_samples == len(expected)
            assert snapshot.version.n_tokens == sum(location.n_tokens for location in snapshot.index)
        with pytest.raises(NotFoundError):
            reader.version(len(self.versions) + 1)
        if self.versions:
            rows = reader.snapshot().quarantined()
            assert sorted(row.source for row in rows) == sorted(self.failures)
        shutil.rmtree(self.root)

    def note(self, record: VersionRecord, samples: frozenset[str]) -> None:
        if not self.versions or record.number > len(self.versions):
            self.versions.append(samples)
        assert record.number == len(self.versions)
        assert samples == self.versions[-1]

    @rule(handle=HANDLES, parts=st.lists(NUMBERS, min_size=1, max_size=2), broken=st.integers(0, 5))
    def commit(self, handle: int, parts: list[list[int]], broken: int) -> None:
        dataset = self.handles[handle]
        closed = [fake_part(dataset.door, "demo", SCHEMA, numbers) for numbers in parts]
        record = dataset.commit(closed, [failed(broken)], run_id="run")
        self.failures.add(failed(broken).source)
        before = self.versions[-1] if self.versions else frozenset()
        self.note(record, before | {fake_id(number) for numbers in parts for number in numbers})

    @precondition(lambda self: self.versions and self.versions[-1])
    @rule(handle=HANDLES, data=st.data())
    def drop(self, handle: int, data: st.DataObject) -> None:
        held = sorted(self.versions[-1])
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=4, unique=True))
        self.note(self.handles[handle].drop(chosen), self.versions[-1] - set(chosen))

    @precondition(lambda self: self.versions)
    @rule(handle=HANDLES, data=st.data())
    def rollback(self, handle: int, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.versions)))
        self.note(self.handles[handle].rollback(number), self.versions[number - 1])

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.handles[handle] = self.open()

    @invariant()
    def committed_bytes_never_change(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_file() and path.name != "latest":
                data = path.read_bytes()
                assert self.bytes.setdefault(str(path), data) == data


Histories.TestCase.settings = settings(deadline=None, max_examples=12, stateful_step_count=12)
TestHistories = Histories.TestCase
