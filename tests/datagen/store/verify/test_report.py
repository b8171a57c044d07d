"""Verify: a clean dataset gives nothing, and every kind of damage is named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datagen.store.checksum import crc32c
from datagen.store.closed_part import ClosedPart
from datagen.store.dataset import Dataset
from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.verify import Report, verify
from schemas.record import canonical_json, sha256_hex
from schemas.records import PartRecord, VersionRecord
from schemas.schema import INPUT_IDS, LOSS_MASK, TARGET_ARGMAX
from tests.builders import tiny_schema
from tests.datagen.store.fake_parts import failed
from tests.datagen.store.real_parts import samples_of, write_part

SCHEMA = tiny_schema(token_columns=(INPUT_IDS, LOSS_MASK, TARGET_ARGMAX))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine")
    dataset = Dataset.create(LocalDoor(root), "demo", SCHEMA, exist_ok=False)
    for number in range(2):
        part = write_part(dataset, SCHEMA, samples_of(SCHEMA, [3, 64, 130], seed=100 * number))
        dataset.commit([part], [failed(number)], run_id="run")
    dataset.drop([dataset.snapshot().sample_ids[0]])
    return root


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "root")
    return tmp_path / "root"


def report_of(root: Path, version: int | None = None) -> Report:
    return verify(Dataset.open(LocalDoor(root), "demo"), version, workers=2)


def first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(f"demo/{pattern}"))[0]


def test_a_clean_dataset_gives_nothing(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    dataset = Dataset.open(LocalDoor(root), "demo")
    report = verify(dataset, on_progress=lambda done, total: seen.append((done, total)))
    # A drop leaves two index files out of the newest version, but not out of the older ones.
    assert report.problems == []
    assert report.ok
    assert (report.n_versions, report.n_parts, report.n_samples) == (3, 2, 5)
    assert seen == sorted(seen)
    assert seen[-1] == (report.size_bytes, report.size_bytes)
    assert report.size_bytes == sum(
        path.stat().st_size for path in (root / "demo/parts").rglob("*") if path.is_file()
    )
    assert [report_of(root, number).problems for number in (1, 2, 3)] == [[], [], []]
    with pytest.raises(NotFoundError, match="got 9"):
        report_of(root, 9)


def test_a_newest_version_without_samples_is_clean(root: Path) -> None:
    dataset = Dataset.open(LocalDoor(root), "demo")
    dataset.drop(dataset.snapshot().sample_ids)
    assert report_of(root).problems == []


FILES = [
    "versions/00000001.json",
    "versions/00000003.json",
    "index/*.parquet",
    "quarantine/*.parquet",
    "schemas/*.json",
    "parts/*/part.json",
    "parts/*/samples.parquet",
    "parts/*/data.zarr/zarr.json",
    "parts/*/data.zarr/embed/zarr.json",
    "parts/*/data.zarr/embed/c/0/0",
    "parts/*/data.zarr/final/c/0/0",
    "parts/*/data.zarr/input_ids/c/0",
    "parts/*/data.zarr/input_ids/zarr.json",
    "parts/*/data.zarr/loss_mask/c/0",
    "parts/*/data.zarr/target_argmax/c/0",
    "parts/*/data.zarr/offsets/c/0",
    "parts/*/data.zarr/offsets/zarr.json",
]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(bytes(data))


def flip_first(path: Path) -> None:
    flip(path, 0)


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def flip_last(path: Path) -> None:
    flip(path, path.stat().st_size - 1)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [flip_first, flip_middle, flip_last, truncate, empty, lengthen, remove]


@pytest.mark.parametrize("pattern", FILES)
def test_damage_is_named(pristine: Path, pattern: str) -> None:
    path = first(pristine, pattern)
    name, sound = str(path.relative_to(pristine)), path.read_bytes()
    for damage in DAMAGES:
        damage(path)
        report = report_of(pristine)
        path.write_bytes(sound)
        found = [str(problem) for problem in report.problems]
        assert any(name in problem.where for problem in report.errors), (damage.__name__, found)


def test_every_byte_of_a_shard_counts(pristine: Path) -> None:
    path = first(pristine, "parts/*/data.zarr/layer2/c/0/0")
    data = path.read_bytes()
    for at in range(0, len(data), 197):
        flip(path, at)
        report = report_of(pristine)
        path.write_bytes(data)
        assert not report.ok, at
    assert report_of(pristine).ok


def test_a_block_is_named_with_its_sample(root: Path) -> None:
    part = first(root, "parts/*")
    rows = pq.read_table(part / "samples.parquet")
    row = rows.column("n_tokens").to_pylist().index(130)
    start = rows.column("row_start")[row].as_py()
    flip(part / "data.zarr/embed/c/0/0", (start + 65) * 16)
    (problem,) = report_of(root).problems
    sample_id = rows.column("sample_id")[row].as_py().hex()
    assert problem.where == f"demo/parts/{part.name}/data.zarr/embed/c/0/0: sample {sample_id}, block 1"
    assert problem.kind == "crc32c"


@pytest.mark.parametrize("file", ["part.json", "samples.parquet", "data.zarr/embed/c/0/0", "data.zarr"])
def test_two_swapped_files_are_named(root: Path, file: str) -> None:
    one, two = (part / file for part in sorted((root / "demo/parts").iterdir())[:2])
    aside = root / "aside"
    os.rename(one, aside)
    os.rename(two, one)
    os.rename(aside, two)
    names = " ".join(problem.where for problem in report_of(root).errors)
    assert str(one.relative_to(root)) in names
    assert str(two.relative_to(root)) in names


def test_a_swap_of_tensors_in_one_part_is_named(root: Path) -> None:
    group = first(root, "parts/*") / "data.zarr"
    (group / "embed").rename(group / "aside")
    (group / "final").rename(group / "embed")
    (group / "aside").rename(group / "final")
    kinds = {problem.kind for problem in report_of(root).errors}
    assert "crc32c" in kinds


def reseal(root: Path, number: int, changes: dict[str, object]) -> None:
    path = root / f"demo/versions/{number:08d}.json"
    record = VersionRecord.from_json(path.read_bytes(), str(path))
    path.write_bytes(record.model_copy(update=changes).sealed().to_json())


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"n_samples": 77}, "n_samples"),
        ({"n_tokens": 77}, "n_tokens"),
        ({"size_bytes": 77}, "size_bytes"),
        ({"n_quarantined": 77}, "n_quarantined"),
        ({"parent": 1}, "parent"),
        ({"number": 7}, "number"),
        ({"dataset_id": "0" * 32}, "dataset_id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_was_edited_with_its_digest_is_named(
    root: Path, changes: dict[str, object], kind: str
) -> None:
    reseal(root, 3, changes)
    assert kind in {problem.kind for problem in report_of(root).errors}


def test_a_record_that_history_was_rewritten_under_is_named(root: Path) -> None:
    reseal(root, 1, {"run_id": "another"})
    assert [(problem.where, problem.kind) for problem in report_of(root).errors] == [
        ("demo/versions/00000002.json", "parent")
    ]


def test_a_gap_in_the_versions_is_named(root: Path) -> None:
    (root / "demo/versions/00000002.json").unlink()
    (problem,) = report_of(root).errors
    assert problem.where.endswith("versions/00000002.json")


def test_a_lost_newest_version_is_told_by_the_hint(root: Path) -> None:
    (root / "demo/versions/00000003.json").unlink()
    assert [problem.where for problem in report_of(root).errors] == ["demo/versions/00000003.json"]


def test_the_same_sample_in_two_index_files_is_named(root: Path) -> None:
    record = VersionRecord.from_json((root / "demo/versions/00000001.json").read_bytes(), "")
    newer = VersionRecord.from_json((root / "demo/versions/00000002.json").read_bytes(), "")
    assert record.index[0] in newer.index
    reseal(root, 2, {"index": (*newer.index, record.index[0])})
    assert "twice" in {problem.kind for problem in report_of(root).errors}


def test_litter_and_orphans_are_notes(root: Path) -> None:
    dataset = Dataset.open(LocalDoor(root), "demo")
    closed = write_part(dataset, SCHEMA, samples_of(SCHEMA, [5], seed=999))
    unfinished = PartWriter(dataset.door, "demo", SCHEMA, "run")
    unfinished.add(samples_of(SCHEMA, [5])[0])
    (root / "demo/index" / f"{'0' * 64}.parquet").write_bytes(b"x")
    (root / "demo/versions/.tmp-00").write_bytes(b"x")
    (root / "demo/notes.txt").write_bytes(b"x")
    report = report_of(root)
    unfinished.abort()
    assert report.ok
    assert sorted((note.kind, note.where) for note in report.notes) == sorted(
        [
            ("litter", "demo/versions/.tmp-00"),
            ("orphan", f"demo/index/{'0' * 64}.parquet"),
            ("orphan", f"demo/parts/{closed.record.part_id}"),
            ("orphan", f"demo/parts/{unfinished.part_id}"),
            ("stranger", "demo/notes.txt"),
        ]
    )


def test_a_file_that_part_json_does_not_list_is_named(root: Path) -> None:
    stray = first(root, "parts/*") / "data.zarr/embed/c/0/1"
    stray.write_bytes(b"x")
    (problem,) = report_of(root).errors
    assert (problem.kind, problem.where) == ("stray", str(stray.relative_to(root)))


class Forgery:
    """A part whose content is wrong, though every digest over it is right."""

    def __init__(self, root: Path) -> None:
        self.dataset = Dataset.create(LocalDoor(root), "demo", SCHEMA, exist_ok=False)
        self.part = write_part(self.dataset, SCHEMA, samples_of(SCHEMA, [3, 70]))
        self.folder = root / "demo/parts" / self.part.record.part_id

    def commit(self) -> Report:
        """Fill in the digests again, commit, and verify."""
        files = []
        for file in self.part.record.files:
            data = (self.folder / file.path).read_bytes()
            digest = sha256_hex(data) if file.sha256 else None
            files.append(file.model_copy(update={"size_bytes": len(data), "sha256": digest}))
        record: PartRecord = self.part.record.model_copy(update={"files": tuple(files)})
        (self.folder / "part.json").write_bytes(record.to_json())
        digest = sha256_hex(record.to_json())
        rows = self.part.samples
        at = rows.schema.get_field_index("part_sha256")
        rows = rows.set_column(at, rows.schema.field(at), pa.array([digest] * rows.num_rows))
        self.dataset.commit([ClosedPart(record, digest, rows)], [], run_id="run")
        return verify(self.dataset)

    def rewrite(self, column: str, change: Callable[[list[object]], list[object]]) -> None:
        path = self.folder / "samples.parquet"
        rows = pq.read_table(path)
        at = rows.schema.get_field_index(column)
        field = rows.schema.field(at)
        rows = rows.set_column(at, field, pa.array(change(rows.column(column).to_pylist()), field.type))
        pq.write_table(rows, path, write_page_checksum=True)

    def edit_json(self, path: str, **changes: object) -> None:
        file = self.folder / path
        file.write_bytes(canonical_json({**json.loads(file.read_bytes()), **changes}))


@pytest.fixture
def forgery(tmp_path: Path) -> Forgery:
    return Forgery(tmp_path)


def kinds(report: Report) -> set[str]:
    return {problem.kind for problem in report.errors}


def test_an_untouched_forgery_is_clean(forgery: Forgery) -> None:
    assert forgery.commit().problems == []


@pytest.mark.parametrize(
    "changes",
    [
        {"data_type": "float16"},
        {"shape": [74, 8]},
        {"codecs": []},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 8]}}},
        {"fill_value": 1.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_metadata_that_departs_from_the_schema(forgery: Forgery, changes: dict[str, object]) -> None:
    forgery.edit_json("data.zarr/embed/zarr.json", **changes)
    (problem,) = forgery.commit().errors
    assert problem.kind == "zarr_json"
    assert next(iter(changes)) in problem.message


def test_norms_that_are_not_of_the_values(forgery: Forgery) -> None:
    forgery.rewrite("norms.embed", lambda values: [[2 * v for v in row] for row in values])  # type: ignore[attr-defined]
    assert {"norm", "norm_median"} <= kinds(forgery.commit())


def test_values_that_are_not_finite(forgery: Forgery) -> None:
    path = forgery.folder / "data.zarr/final/c/0/0"
    data = bytearray(path.read_bytes())
    data[0:2] = np.array([np.nan], ml_dtypes.bfloat16).tobytes()
    path.write_bytes(bytes(data))
    assert "non_finite" in kinds(forgery.commit())


def test_tokens_that_are_not_the_samples(forgery: Forgery) -> None:
    forgery.rewrite("sample_id", lambda values: values[::-1])
    assert {"identity", "sample_id"} <= kinds(forgery.commit())


def test_counts_that_are_not_the_masks(forgery: Forgery) -> None:
    forgery.rewrite("n_trained", lambda values: [value + 1 for value in values])  # type: ignore[operator]
    assert kinds(forgery.commit()) == {"n_trained"}


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("input_ids", 1000, "values"),
        ("input_ids", -1, "values"),
        ("loss_mask", 2, "values"),
        ("offsets", 1, "offsets"),
    ],
)
def test_columns_with_wrong_values(forgery: Forgery, column: str, value: int, kind: str) -> None:
    dtype = {"input_ids": "int32", "loss_mask": "uint8", "offsets": "int64"}[column]
    path = forgery.folder / f"data.zarr/{column}/c/0"
    values = np.frombuffer(path.read_bytes()[:-4], NUMPY_DTYPES[dtype]).copy()
    values[0] = value
    path.write_bytes(values.tobytes() + crc32c(values.tobytes()).to_bytes(4, "little"))
    assert kind in kinds(forgery.commit())


def test_sound_bytes_with_another_whole_checksum(forgery: Forgery) -> None:
    forgery.rewrite("crc32c_all.embed", lambda values: [int(value) ^ 1 for value in values])  # type: ignore[call-overload]
    report = forgery.commit()
    assert kinds(report) == {"crc32c"}
    of_shard = [problem for problem in report.errors if "data.zarr/embed/c/0/0: sample" in problem.where]
    assert len(of_shard) == 2
    assert all("over all rows" in problem.message for problem in of_shard)
