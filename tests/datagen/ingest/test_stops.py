"""An ingest that is stopped, killed or fails leaves whole samples, and the same ingest goes on from there."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datagen.adapters.imports.format import ForeignRow, Listed, OpenFiles
from datagen.config import PartSettings
from datagen.errors import SpaceError
from datagen.ingest.plan import IngestPlan, plan_ingest
from datagen.ingest.writing import write
from datagen.stopping import Stopping
from datagen.store.dataset import Dataset
from datagen.store.errors import DoorError
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from schemas.problem import Problem
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset
from tests.datagen.ingest.ingest_builders import assert_same, back, export, ingest, unproven

PARTS = PartSettings(max_samples=2, commit_every_parts=1)


class Watched:
    """Files that do something when one of them is read for writing."""

    def __init__(self, files: OpenFiles, act: Callable[[int], None]) -> None:
        self.samples: Sequence[Listed] = files.samples
        self.problems: Sequence[Problem] = files.problems
        self.claimed = files.claimed
        self.n_read = 0
        self._files, self._act = files, act

    def read(self, listed: Listed, *, states: bool = True) -> ForeignRow:
        self.n_read += 1
        self._act(self.n_read)
        return self._files.read(listed, states=states)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    root = tmp_path_factory.mktemp("exported")
    dataset = make_dataset(root)
    return dataset, export(dataset, "speculators", root / "out")


def watched(plan: IngestPlan, act: Callable[[int], None]) -> tuple[IngestPlan, Watched]:
    files = Watched(plan.opened.files, act)
    return replace(plan, opened=replace(plan.opened, files=files)), files


def assert_whole(root: Path) -> None:
    report = verify(Dataset.open(LocalDoor(root), "back"), workers=1)
    assert report.ok


def goes_on(dataset: str, out: Path, root: Path, n_there: int) -> None:
    """Go on with an ingest: what is there is not written again, and in the end all is there."""
    plan, done = ingest(unproven("speculators", [out], root), parts=PARTS)
    assert plan.looked.n_there == n_there
    assert done.n_samples == len(LENGTHS) - n_there
    expected, got = open_dataset(dataset).snapshot(), back(root)
    assert list(got.sample_ids) == list(expected.sample_ids)
    for sample_id in got.sample_ids:
        assert_same(got.read(sample_id), expected.read(sample_id, names=got.schema.names), got.schema.names)
    assert_whole(root)
    assert plan_ingest(unproven("speculators", [out], root), 2).nothing_to_do


def test_a_stop_closes_the_part_in_hand_and_the_same_ingest_goes_on(
    exported: tuple[str, Path], tmp_path: Path
) -> None:
    with Stopping() as stopping:

        def act(n_read: int) -> None:
            stopping.requested = n_read >= 5

        plan, files = watched(plan_ingest(unproven("speculators", [exported[1]], tmp_path), 1), act)
        done = write(plan, 1, stopping, PARTS)
    assert (done.outcome, files.n_read, done.n_samples) == ("interrupted", 5, 5)
    assert len(back(tmp_path)) == 5
    assert_whole(tmp_path)
    goes_on(*exported, tmp_path, 5)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), DoorError("the disk is full"), RuntimeError("a mistake")], ids=repr
)
def test_what_was_committed_before_an_error_stays(
    error: BaseException, exported: tuple[str, Path], tmp_path: Path
) -> None:
    def act(n_read: int) -> None:
        if n_read == 6:
            raise error

    plan, _ = watched(plan_ingest(unproven("speculators", [exported[1]], tmp_path), 1), act)
    with pytest.raises(type(error)), Stopping() as stopping:
        write(plan, 1, stopping, PARTS)
    assert len(back(tmp_path)) == 4
    assert_whole(tmp_path)
    ends = Dataset.open(LocalDoor(tmp_path), "back").run_ends()
    assert [end.outcome for end in ends] == (["failed"] if isinstance(error, DoorError) else [])
    goes_on(*exported, tmp_path, 4)


def test_without_room_nothing_is_written(
    exported: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datagen.ingest.writing.free_bytes", lambda _path: 1000)
    with pytest.raises(SpaceError, match="bytes free, got 1,000"):
        ingest(unproven("speculators", [exported[1]], tmp_path))
    assert not (tmp_path / "back").exists()


def test_two_at_once_bring_each_sample_in_once(exported: tuple[str, Path], tmp_path: Path) -> None:
    given: Any = unproven("speculators", [exported[1]], tmp_path)
    plans = [plan_ingest(given, 1) for _ in range(2)]
    for plan in plans:  # both were planned while nothing was there
        with Stopping() as stopping:
            assert write(plan, 2, stopping, PARTS).outcome == "complete"
    assert len(back(tmp_path)) == len(LENGTHS)
    assert_whole(tmp_path)
