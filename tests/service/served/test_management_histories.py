"""Any sequence of commits and management keeps verify clean, and its versions readable or gone."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from datagen.store.dataset import Dataset
from datagen.store.errors import AlreadyExistsError, ConflictError, GoneError
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from schemas.split import split_of
from service.served import management
from service.served.changes import (
    CondemnChange,
    DropChange,
    NameChange,
    RollbackChange,
    SplitChange,
    SplitShare,
    SweepChange,
)
from service.served.comparison import Pages, compare
from tests.builders import random_sample, tiny_schema
from tests.datagen.store.real_parts import commit_samples

SCHEMA = tiny_schema(("final",))
KEPT = st.integers(1, 3)


class Managed(RuleBasedStateMachine):
    """One dataset against the list of samples that its versions should have."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.dataset = Dataset.create(LocalDoor(self.root), "demo", SCHEMA, exist_ok=False)
        self.versions: list[frozenset[str]] = []
        self.names: dict[str, int] = {}
        self.kept = 1
        self.made = 0
        self.append(2)

    def teardown(self) -> None:
        report = verify(self.dataset, workers=1)
        assert report.ok, report.errors
        self.every_version_reads_or_is_gone()
        shutil.rmtree(self.root)

    def note(self, number: int, samples: frozenset[str]) -> None:
        if number > len(self.versions):
            self.versions.append(samples)
        assert number == len(self.versions) == self.dataset.log.newest()
        assert samples == self.versions[-1]

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        numbers = range(self.made, self.made + count)
        self.made += count
        samples = [random_sample(SCHEMA, 1 + n % 4, n, f"talk-{n // 2}") for n in numbers]
        commit_samples(self.dataset, SCHEMA, samples)
        before = self.versions[-1] if self.versions else frozenset()
        self.note(self.dataset.log.newest(), before | {sample.sample_id for sample in samples})

    @precondition(lambda self: self.versions[-1])
    @rule(data=st.data(), stale=st.booleans())
    def drop(self, data: st.DataObject, stale: bool) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.versions[-1])), min_size=1, max_size=3))
        asked = DropChange(sample_ids=tuple(sorted(chosen)), expected_version=len(self.versions) + stale)
        try:
            found = management.drop(self.dataset, asked)
        except ConflictError:
            assert stale
            return
        assert not stale
        assert found.n_dropped == len(chosen)
        self.note(found.version, self.versions[-1] - chosen)
        assert not management.drop(self.dataset, asked).changed

    @rule(seed=st.integers(0, 2), share=st.sampled_from([0.2, 0.5, 1.0]))
    def split(self, seed: int, share: float) -> None:
        asked = SplitChange(seed=seed, shares=(SplitShare(split="train", share=share),))
        found = management.split(self.dataset, asked)
        self.note(found.version, self.versions[-1])
        index = self.dataset.snapshot().index
        inside = [one for one in index if split_of(found.rule, one.conversation_id) == "train"]
        assert found.shares[0].n_samples == len(inside)

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.versions)))
        try:
            found = management.rollback(self.dataset, RollbackChange(version=str(number)))
        except ConflictError:
            assert self.dataset.condemned_parts(self.dataset.version(number))
            return
        self.note(found.version, self.versions[number - 1])

    @rule(data=st.data(), name=st.sampled_from(["a", "b"]))
    def name(self, data: st.DataObject, name: str) -> None:
        number = data.draw(st.integers(1, len(self.versions)))
        try:
            found = management.name(self.dataset, NameChange(name=name, version=str(number)))
        except AlreadyExistsError:
            assert self.names[name] != number
        except ConflictError:
            assert self.dataset.condemned_parts(self.dataset.version(number))
        else:
            assert self.names.setdefault(name, number) == found.version == number

    @rule(keep=KEPT, dry_run=st.booleans())
    def condemn(self, keep: int, dry_run: bool) -> None:
        asked = CondemnChange(keep_versions=keep, grace_seconds=0, dry_run=dry_run)
        found = management.gc_condemn(self.dataset, asked)
        self.note(found.version, self.versions[-1])

    @rule(dry_run=st.booleans())
    def sweep(self, dry_run: bool) -> None:
        management.gc_sweep(self.dataset, SweepChange(grace_seconds=0, dry_run=dry_run))

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        one, other = (data.draw(st.integers(1, len(self.versions))) for _ in range(2))
        found = compare(self.dataset, str(one), str(other), Pages(1000))
        before, after = self.versions[one - 1], self.versions[other - 1]
        assert list(found.added.sample_ids) == sorted(after - before)
        assert list(found.removed.sample_ids) == sorted(before - after)

    @rule()
    def reopen(self) -> None:
        self.dataset = Dataset.open(LocalDoor(self.root), "demo")

    @invariant()
    def every_version_reads_or_is_gone(self) -> None:
        named = set(self.names.values())
        for number, expected in enumerate(self.versions, 1):
            snapshot = Dataset.open(LocalDoor(self.root), "demo").snapshot(number)
            assert list(snapshot.sample_ids) == sorted(expected)
            gone = set(self.dataset.condemned_parts(snapshot.version))
            assert not gone or number not in named | {len(self.versions)}
            for sample_id in expected:
                try:
                    assert len(snapshot.read(sample_id).tensors["final"])
                except GoneError:
                    assert snapshot.location(sample_id).part_id in gone


Managed.TestCase.settings = settings(deadline=None, max_examples=6, stateful_step_count=14)
TestManaged = Managed.TestCase
