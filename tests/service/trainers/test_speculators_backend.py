"""The backend gives what speculators' own reader of files gives for the same row, in every process."""

import argparse
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hs_connectors import FileTransfer, HiddenStatesBackend
from torch.utils.data import DataLoader, Dataset

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.errors import CorruptError
from schemas.schema import DTYPES, DType
from service.client.client import Client
from service.trainers import served, speculators_backend
from service.trainers.errors import TrainerError
from service.trainers.held import Held, open_held
from service.trainers.prepared import Prepared
from service.trainers.speculators_backend import NAME, StrataBackend, StrataTransfer, register
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset
from tests.service.client.test_direct import flip
from tests.service.serving import serving
from tests.service.trainers.places import WAYS, held_in, prepared_from

Row = dict[str, torch.Tensor]


class Rows(Dataset[Row]):
    """Rows as a trainer's dataset reads them, in a worker too."""

    def __init__(self, transfer: StrataTransfer) -> None:
        self.transfer = transfer

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, row: int) -> Row:
        return self.transfer.get_cached(row)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    return root


@pytest.fixture(scope="module")
def held(root: Path) -> Iterator[dict[str, Held]]:
    with held_in(root, "states") as held:
        yield held


@pytest.fixture(scope="module")
def prepared(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared_from(open_held(f"{root}/states"), tmp_path_factory.mktemp("prepared") / "p")


@pytest.fixture(scope="module")
def files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> FileTransfer:
    out = tmp_path_factory.mktemp("files") / "out"
    run_export(plan_export(Asked(f"{root}/states", "speculators", out)), workers=1)
    return FileTransfer(out / "hidden_states")


def assert_same(ours: Row, theirs: Row | None) -> None:
    assert theirs is not None
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype
        assert ours[name].shape == expected.shape
        assert ours[name].is_contiguous()
        assert torch.equal(ours[name].view(torch.uint8), expected.view(torch.uint8)), name


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_what_the_reader_of_files_gives(
    held: dict[str, Held], prepared: Prepared, files: FileTransfer, way: str
) -> None:
    transfer = StrataTransfer(held[way], prepared.folder)
    kept = [transfer.get_cached(row) for row in range(len(LENGTHS))]
    for row, ours in enumerate(kept):
        assert_same(ours, files.get_cached(row))
    # Memory is used again only when nobody looks into it any longer.
    again = [transfer.get_cached(row) for row in range(len(LENGTHS))]
    del kept
    for row in reversed(range(len(LENGTHS))):
        assert_same(transfer.get_cached(row), files.get_cached(row))
        assert_same(again[row], files.get_cached(row))


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_are_expected_are_the_same_and_given_once(
    held: dict[str, Held], prepared: Prepared, files: FileTransfer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculators_backend, "ROWS_AT_ONCE", 2)
    transfer = StrataTransfer(held[way], prepared.folder)
    transfer.get_cached(0)  # how samples are fetched is known by then
    rows = [2, 0, 1]
    transfer.expect([1])
    transfer.expect(rows)
    first, again = ([transfer.get_cached(row) for row in rows] for _ in range(2))
    for row, ours, other in zip(rows, first, again, strict=True):
        assert_same(ours, files.get_cached(row))
        assert_same(other, files.get_cached(row))
        assert ours["hidden_states"].data_ptr() != other["hidden_states"].data_ptr()


@pytest.mark.parametrize("most", [{"max_batch_samples": 1}, {"max_response_bytes": 12_000}])
def test_a_service_that_gives_less_at_once_is_asked_for_less(
    root: Path, prepared: Prepared, files: FileTransfer, most: dict[str, Any]
) -> None:
    rows = [1, 4, 0, 3]
    with serving(root, **most) as url:
        transfer = StrataTransfer(open_held(f"{url}#states", direct=False), prepared.folder)
        transfer.get_cached(0)
        transfer.expect(rows)
    for row in rows:
        assert_same(transfer.get_cached(row), files.get_cached(row))


def test_the_trainers_dataset_says_a_batchs_rows_before_it_takes_them(
    held: dict[str, Held], prepared: Prepared, files: FileTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ArrowDataset(Rows):
        def _map_to_file_idx(self, index: int) -> int:
            return index

    asked: list[list[int]] = []

    class Transfer(StrataTransfer):
        def _read(self, rows: Sequence[int]) -> list[Row]:
            asked.append([*rows])
            return super()._read(rows)

    monkeypatch.setitem(sys.modules, "speculators.train.data", SimpleNamespace(ArrowDataset=ArrowDataset))
    transfer = Transfer(held["http"], prepared.folder)
    transfer.get_cached(0)
    batches = [[2, 0], [1]]
    loader = DataLoader(ArrowDataset(transfer), batch_sampler=batches, collate_fn=list)
    for rows, batch in zip(batches, loader, strict=True):
        for row, ours in zip(rows, batch, strict=True):
            assert_same(ours, files.get_cached(row))
    assert asked == [[0], [2, 0], [1]]
    monkeypatch.setattr(transfer, "expect", lambda _: pytest.fail("no transfer of ours"))
    other: Any = ArrowDataset(transfer)
    other.transfer = files
    assert_same(next(iter(DataLoader(other, batch_sampler=[[1]], collate_fn=list)))[0], files.get_cached(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_as_files_have_it(tmp_path: Path, dtype: DType) -> None:
    reference = make_dataset(tmp_path, lengths=(3, 65), dtype=dtype)
    out = run_export(plan_export(Asked(reference, "speculators", tmp_path / "out")), workers=1).path
    stored = open_held(reference)
    transfer = StrataTransfer(stored, prepared_from(stored, tmp_path / "p").folder)
    for row in range(2):
        assert_same(transfer.get_cached(row), FileTransfer(out / "hidden_states").get_cached(row))


@pytest.mark.parametrize(("context", "way"), [("fork", "http"), ("spawn", "stored")])
def test_workers_give_the_same(
    held: dict[str, Held], prepared: Prepared, files: FileTransfer, context: str, way: str
) -> None:
    transfer = StrataTransfer(held[way], prepared.folder)
    transfer.get_cached(0)  # what the parent has open must do no harm in a child
    loader = DataLoader(
        Rows(transfer), batch_size=None, num_workers=1, multiprocessing_context=context, shuffle=False
    )
    for row, ours in enumerate(loader):
        assert_same(ours, files.get_cached(row))


def test_what_travels_to_a_worker_is_small(held: dict[str, Held], prepared: Prepared) -> None:
    transfer = StrataTransfer(held["stored"], prepared.folder)
    transfer.get_cached(0)
    assert len(pickle.dumps(transfer)) < 4096


@pytest.mark.parametrize("row", [-1, len(LENGTHS)])
def test_a_row_that_there_is_not(held: dict[str, Held], prepared: Prepared, row: int) -> None:
    with pytest.raises(IndexError, match=f"expected a row between 0 and {len(LENGTHS) - 1}, got {row}"):
        StrataTransfer(held["stored"], prepared.folder).get_cached(row)


def test_damage_is_an_error_that_names_it_and_never_a_sample_left_out(tmp_path: Path) -> None:
    reference = make_dataset(tmp_path, lengths=(130,))
    (path,) = (each for each in tmp_path.glob("states/parts/*/data.zarr/layer4/c/**/*") if each.is_file())
    stored = open_held(reference)
    transfer = StrataTransfer(stored, prepared_from(stored, tmp_path / "p").folder)
    flip(path, 70 * 16)
    with pytest.raises(CorruptError, match=r"layer4.*block 1: expected crc32c"):
        transfer.get_cached(0)
    loader = DataLoader(Rows(transfer), batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(CorruptError, match=r"layer4.*block 1: expected crc32c"):
        next(iter(loader))


def test_it_is_reached_by_the_plug_in_point(
    root: Path, prepared: Prepared, files: FileTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[SimpleNamespace] = []
    bounded: list[int] = []

    def keeping() -> SimpleNamespace:
        kept.append(SimpleNamespace(bound=bounded.append))
        return kept[-1]

    monkeypatch.setattr(speculators_backend, "keep_freed_memory", keeping)
    register()
    register()
    backend = HiddenStatesBackend.registry[NAME]
    assert backend is StrataBackend
    parser = argparse.ArgumentParser()
    backend.add_train_args(parser)
    given = parser.parse_args(["--strata-source", f"{root}/states@1"])
    transfer = backend.from_train_args(given, str(prepared.folder))
    transfer.setup()
    ours = transfer.get_cached(1)
    assert ours is not None
    assert_same(ours, files.get_cached(1))
    transfer.get_cached(0)
    pickle.loads(pickle.dumps(transfer)).get_cached(0)
    assert len(kept) == 2  # once in a process, a worker's too
    sizes = [row["hidden_states"].nbytes for row in map(transfer.get_cached, (1, 0))]
    assert bounded == [*sizes, sizes[1], *sizes]  # each row that was read
    with pytest.raises(TrainerError, match="expected --strata-source"):
        backend.from_train_args(parser.parse_args([]), str(prepared.folder))
    with pytest.raises(TrainerError, match="nothing is generated"):
        transfer.get_generated({})


def test_a_key_reaches_the_service_by_the_environment(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def opening(*given: object) -> Held:
        asked.append(given)
        raise TrainerError("far enough")

    monkeypatch.setattr("service.trainers.speculators_backend.open_held", opening)
    monkeypatch.setenv("STRATA_KEY", "strata_id_secret")
    given = argparse.Namespace(strata_source="http://127.0.0.1:1#states@1")
    with pytest.raises(TrainerError, match="far enough"):
        StrataBackend.from_train_args(given, str(prepared.folder))
    assert asked == [("http://127.0.0.1:1#states@1", "strata_id_secret")]


def test_a_service_that_is_away_is_waited_for_longer_while_training_than_at_the_opening(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retries: list[int] = []

    class Asking(Client):
        def version(self, *given: Any, **named: Any) -> Any:
            retries.append(self.session.settings.patience.retries)
            return super().version(*given, **named)

    monkeypatch.setattr(served, "Client", Asking)
    with serving(root) as url:
        held: Any = pickle.loads(pickle.dumps(open_held(f"{url}#states", direct=False)))
        assert held.source == f"{url}#states@1"
    assert retries == [6, served.RETRIES_WHILE_TRAINING]
    patience = held.version.session.settings.patience
    shortest = sum(min(patience.longest_pause, 0.25 * 2**each) for each in range(patience.retries)) / 2
    assert shortest > 120
