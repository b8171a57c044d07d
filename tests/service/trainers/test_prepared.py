"""A prepared folder is an export's without its states, to the byte; whole or not there; of one version."""

import json
import multiprocessing
import re
import shutil
from pathlib import Path

import pytest

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.errors import DoorError, NotFoundError
from datagen.store.trainer_rows import ROWS
from schemas.card import CARD_FILE
from schemas.records import SplitRule
from service.client.errors import InvalidError
from service.trainers import preparing
from service.trainers.errors import TrainerError
from service.trainers.held import open_held
from service.trainers.prepared import IDENTITY, open_prepared, read_sample_ids
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset
from tests.full_disk import no_file_larger_than
from tests.service.trainers.places import WAYS, held_in, prepared_from

SPLITS = ("train", "validation")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the dataset `states`: version 1, and version 2 with splits."""
    root = tmp_path_factory.mktemp("root")
    reference = make_dataset(root)
    fractions = (("train", 0.6), ("validation", 0.4))
    open_dataset(reference).split([SplitRule(name="halves", seed=4, fractions=fractions)])
    return root


@pytest.mark.parametrize("splits", [(), SPLITS], ids=["whole", "split"])
def test_it_is_an_export_without_its_states_to_the_byte(
    root: Path, tmp_path: Path, splits: tuple[str, ...]
) -> None:
    plan = plan_export(Asked(f"{root}/states@2", "speculators", tmp_path / "out", splits=splits))
    exported = run_export(plan, workers=1).path
    shutil.rmtree(exported / "hidden_states")
    expected = {path.name: path.read_bytes() for path in exported.iterdir()}
    # All that an export says more: in which file each row lies.
    expected[ROWS] = re.sub(rb'"file":"[^"]*",', b"", expected[ROWS])
    ours = {"strata_files.sha256", "strata_export.json"}
    with held_in(root, "states@2") as held:
        for way in WAYS:
            made = prepared_from(held[way], tmp_path / way, splits=splits)
            found = {path.name: path.read_bytes() for path in made.folder.iterdir()}
            assert {*found} == {*expected} - ours | {IDENTITY}
            assert {name for name, data in found.items() if expected.get(name) != data} == {IDENTITY}
            assert (made.n_rows, made.n_train) == (len(plan.rows), plan.n_train)
            assert made.slots == ("layer2", "layer4", "layer5", "final")
            rows = [row.location.sample_id for row in plan.rows]
            assert [row.sample_id for row in made.rows()] == rows
            assert [bytes(each).hex() for each in read_sample_ids(made.folder, len(rows))] == rows
            assert not made.was_there


def test_what_is_there_is_taken_as_it_is(root: Path, tmp_path: Path) -> None:
    held = open_held(f"{root}/states@1")
    first = prepared_from(held, tmp_path / "p")
    (first.folder / "d2t-64.npy").write_bytes(b"the trainer writes its vocabulary there")
    again = prepared_from(held, tmp_path / "p")
    assert again.was_there
    assert (again.n_rows, again.n_train, again.n_tokens) == (first.n_rows, first.n_train, sum(LENGTHS))
    assert open_prepared(first.folder).meant == first.meant


@pytest.mark.parametrize(
    ("version", "fc", "splits", "told"),
    [
        (2, None, (), "dataset.version: expected 2, got 1 there"),
        (1, ("layer2", "layer4"), (), "wiring.fc: expected"),
        (2, None, SPLITS, "splits: expected"),
    ],
    ids=["version", "wiring", "splits"],
)
def test_what_is_there_of_something_else_is_refused_by_name(
    root: Path, tmp_path: Path, version: int, fc: tuple[str, ...] | None, splits: tuple[str, ...], told: str
) -> None:
    made = prepared_from(open_held(f"{root}/states@1"), tmp_path / "p")
    before = sorted((path.name, path.read_bytes()) for path in made.folder.iterdir())
    with pytest.raises(TrainerError) as caught:
        prepared_from(open_held(f"{root}/states@{version}"), tmp_path / "p", fc, splits)
    assert told in str(caught.value)
    assert sorted((path.name, path.read_bytes()) for path in made.folder.iterdir()) == before


@pytest.mark.parametrize("name", ["token_freq.pt", ROWS, CARD_FILE])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_that_is_gone_or_cut_is_named(root: Path, tmp_path: Path, name: str, damage: str) -> None:
    held = open_held(f"{root}/states@1")
    path = prepared_from(held, tmp_path / "p").folder / name
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    with pytest.raises(TrainerError, match=name):
        prepared_from(held, tmp_path / "p")


@pytest.mark.parametrize(
    "content", [None, b"{", b"[]", b'{"format": "other"}', b'{"format": "strata.prepared.v1"}']
)
def test_other_files_are_left_alone(root: Path, tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "mine").write_bytes(b"mine")
    if content is not None:
        (folder / IDENTITY).write_bytes(content)
    with pytest.raises(TrainerError, match="nothing that was prepared"):
        prepared_from(open_held(f"{root}/states@1"), folder)
    assert (folder / "mine").read_bytes() == b"mine"


def test_a_stop_leaves_nothing_that_is_taken_for_whole(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = open_held(f"{root}/states@1")

    def stopped(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "rows_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepared_from(held, tmp_path / "p")
    assert not (tmp_path / "p").exists()
    # What a killed one leaves is swept away by the next.
    litter = tmp_path / ".p.partial"
    litter.mkdir()
    (litter / "half").write_bytes(b"")
    made = prepared_from(held, tmp_path / "p")
    assert not (made.folder / "half").exists()


def test_rows_out_of_their_order_are_refused(root: Path, tmp_path: Path) -> None:
    made = prepared_from(open_held(f"{root}/states@1"), tmp_path / "p")
    lines = (made.folder / ROWS).read_bytes().splitlines(keepends=True)
    (made.folder / ROWS).write_bytes(b"".join(lines[::-1]))
    with pytest.raises(TrainerError, match="expected row 0"):
        made.rows()


@pytest.mark.parametrize(("way", "error"), [("stored", NotFoundError), ("http", InvalidError)])
def test_a_split_that_there_is_not_is_refused(root: Path, tmp_path: Path, way: str, error: type) -> None:
    with held_in(root, "states@2") as held, pytest.raises(error, match="train, validation"):
        prepared_from(held[way], tmp_path / "p", splits=("test",))
    assert not (tmp_path / "p").exists()


def test_of_several_processes_one_makes_it(root: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        made = pool.starmap(_was_there, [(f"{root}/states@1", tmp_path / "p")] * 6)
    assert sorted(made) == [False, *[True] * 5]
    assert json.loads((tmp_path / "p" / IDENTITY).read_bytes())["rows"] == len(LENGTHS)


def _was_there(source: str, folder: Path) -> bool:
    return prepared_from(open_held(source), folder).was_there


def test_a_folder_that_finds_no_room_is_named_and_not_there(root: Path, tmp_path: Path) -> None:
    held = open_held(f"{root}/states@1")
    for n_bytes in (100, 2500):
        with no_file_larger_than(n_bytes), pytest.raises(DoorError, match=f"cannot write {tmp_path / 'p'}"):
            prepared_from(held, tmp_path / "p")
        assert [path.name for path in tmp_path.iterdir() if "p" in path.name] == [".p.lock"]
