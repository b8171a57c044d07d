"""Direct mode: what lies in the files is what is fetched; damage there is an error that names its part."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from datagen.store.sample_data import SampleData
from service.client import direct, errors
from service.client.client import Client
from service.client.version import Version
from tests.service.serving import make_dataset, serving

LENGTHS = (200, 64, 1, 130)
_numbers = itertools.count()


class Written(NamedTuple):
    """A dataset of a test's own: its name, where it lies, and its samples."""

    name: str
    folder: Path
    samples: list[SampleData]

    @property
    def ids(self) -> list[str]:
        return [sample.sample_id for sample in self.samples]

    def file(self, name: str) -> Path:
        """Return the one file that holds an array."""
        (found,) = (path for path in self.folder.glob(f"parts/*/data.zarr/{name}/c/**/*") if path.is_file())
        return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with serving(root) as url:
        yield url


@pytest.fixture
def written(root: Path) -> Written:
    name = f"demo{next(_numbers)}"
    return Written(name, root / name, make_dataset(root, name, LENGTHS))


@pytest.fixture
def version(url: str, written: Written) -> Iterator[Version]:
    with Client(url, direct=True) as client:
        yield client.version(written.name)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_auto_reads_files_where_it_can(url: str, written: Written) -> None:
    with Client(url) as client:
        version = client.version(written.name)
        modes = [version.mode]
        version.tensors(written.ids[0])
        assert [*modes, version.mode, client.mode] == [None, "direct", "direct"]


def test_auto_goes_by_http_where_paths_are_not_told(root: Path, written: Written) -> None:
    sample = written.samples[0]
    with serving(root, locations="off") as url, Client(url) as client:
        rows = client.version(written.name).tensors(sample.sample_id)
        assert client.mode == "http"
        assert rows.tensors["final"].tobytes() == sample.tensors["final"].tobytes()
        with Client(url, direct=True) as other, pytest.raises(errors.DeniedError, match="not told here"):
            other.version(written.name).tensors(sample.sample_id)


@pytest.mark.parametrize("kind", ["longer", "gone"])
def test_auto_goes_by_http_where_files_are_not_as_told(url: str, written: Written, kind: str) -> None:
    with Client(url) as client:
        version = client.version(written.name)
        version.locations(written.ids)
        path = written.file("final")
        kept = path.read_bytes()
        path.unlink()
        if kind == "longer":
            path.write_bytes(kept + b"more")
        version.tensors(written.ids[0], ["layer2"])
        assert client.mode == "http"


def test_locations_are_asked_for_once_and_together(
    version: Version, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = version.locations(written.ids, ["final"])
    assert [location.sample_id for location in told] == written.ids
    assert [location.n_tokens for location in told] == list(LENGTHS)
    # Nothing more is asked of the service.
    monkeypatch.setattr(version.session.transport, "json", None)
    assert version.locations(written.ids[::-1], ["final"]) == told[::-1]
    rows = version.batch(written.ids, ["final"])
    expected = b"".join(sample.tensors["final"].tobytes() for sample in written.samples)
    assert rows.tensors["final"].tobytes() == expected
    with pytest.raises(TypeError):
        version.batch(written.ids, ["layer2"])


def test_a_flipped_bit_names_part_tensor_and_block(version: Version, written: Written) -> None:
    sample_id = written.ids[0]
    first = version.locations([sample_id])[0]
    at = next(array.offset for array in first.arrays if array.name == "final")
    flip(written.file("final"), at + 150 * 16)
    for window in (slice(0, 128), slice(192, 200)):
        version.tensors(sample_id, tokens=window)
    version.tensors(sample_id, ["layer2", "input_ids"])
    version.tensors(written.ids[1])
    for damaged in (None, slice(128, 129), slice(191, 192), slice(0, None)):
        with pytest.raises(errors.DamagedError) as caught:
            version.tensors(sample_id, tokens=damaged)
        (problem,) = caught.value.problems
        assert problem.where == f"{first.arrays[0].part_id}/final"
        assert problem.message.startswith("block 2: expected crc32c 0x")


def test_a_token_column_is_checked_too(version: Version, written: Written) -> None:
    version.locations(written.ids)
    flip(written.file("input_ids"), 0)
    with pytest.raises(errors.DamagedError, match="input_ids"):
        version.batch(written.ids)


@pytest.mark.parametrize("check", [True, False])
def test_a_shard_that_is_cut_is_named_and_never_zeros(url: str, written: Written, check: bool) -> None:
    with Client(url, direct=True, check=check) as client:
        version = client.version(written.name)
        part_id = version.locations(written.ids)[0].arrays[0].part_id
        version.batch(written.ids)
        os.truncate(written.file("layer2"), 100)
        with pytest.raises(
            errors.DamagedError, match=f"{part_id}/layer2: .* got a file that ends at byte 100"
        ):
            version.batch(written.ids)


def test_a_shard_that_is_swept_is_named(version: Version, written: Written) -> None:
    part_id = version.locations(written.ids)[0].arrays[0].part_id
    written.file("layer2").unlink()
    with pytest.raises(errors.DamagedError, match="No such file") as caught:
        version.batch(written.ids)
    assert {problem.where for problem in caught.value.problems} == {f"{part_id}/layer2"}


def test_unchecked_reads_are_taken_as_they_are(url: str, written: Written) -> None:
    flip(written.file("final"), 0)
    with Client(url, direct=True, check=False) as client:
        rows = client.version(written.name).batch(written.ids, ["final"])
    found = rows.tensors["final"].tobytes()
    expected = b"".join(sample.tensors["final"].tobytes() for sample in written.samples)
    assert sum(one != other for one, other in zip(found, expected, strict=True)) == 1


@pytest.mark.parametrize("piece_bytes", [1, 1024, 2048, 10**6])
def test_any_size_of_pieces_gives_the_same(
    version: Version, written: Written, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(direct, "PIECE_BYTES", piece_bytes)
    sample = written.samples[0]
    for first, end in ((0, 200), (0, 64), (63, 65), (64, 128), (1, 199), (130, 131), (192, 200)):
        rows = version.tensors(sample.sample_id, ["final"], slice(first, end))
        assert rows.tensors["final"].tobytes() == sample.tensors["final"][first:end].tobytes()


def test_what_is_read_in_part_is_read_on(
    version: Version, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def reading_some(fd: int, buffers: list[memoryview], offset: int) -> int:
        return preadv(fd, [buffers[0][:500]], offset)

    monkeypatch.setattr(os, "preadv", reading_some)
    sample = written.samples[0]
    rows = version.tensors(sample.sample_id, ["final"])
    assert rows.tensors["final"].tobytes() == sample.tensors["final"].tobytes()


def test_open_files_are_bounded(version: Version, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "OPEN_FILES", 2)
    reader = direct.DirectReader(check=True)
    version.session._files = reader
    before = len(os.listdir("/proc/self/fd"))
    for sample_id in written.ids:
        version.tensors(sample_id)
    assert reader._open.cache_info().currsize == 2
    assert len(os.listdir("/proc/self/fd")) <= before + 3
