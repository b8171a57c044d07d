"""A target cache that somebody gave us: what is whole comes back, what is not is refused by name."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datagen.adapters.errors import ForeignFileError
from datagen.adapters.imports.deepspec import DeepSpecFiles
from datagen.adapters.imports.format import ImportOptions, OpenFiles
from datagen.export.exporting import Asked, plan_export, run_export
from tests.builders import tiny_target
from tests.datagen.adapters.exports.builders import make_dataset, open_dataset
from tests.datagen.adapters.exports.test_deepspec import row_ids
from tests.datagen.adapters.imports.cut_shards import cut_while_held

FC = ("embed", "layer4", "final")
NAMES = (*FC, "final_normed")
LENGTHS = (5, 33, 1, 20)
OPTIONS = ImportOptions(tiny_target(n_layers=8))
TOKEN = 6 + 4 * 16
"""Bytes of a token: ids, two masks, four states of 8 values."""


def write_cache(root: Path) -> tuple[str, Path]:
    """Export a dataset of four samples, and return its reference and the cache."""
    reference = make_dataset(root, names=NAMES, lengths=LENGTHS)
    run_export(plan_export(Asked(reference, "deepspec", root / "out", fc=FC)), workers=1)
    return reference, root / "out"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return write_cache(tmp_path_factory.mktemp("exported"))


@pytest.fixture
def cache(exported: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(exported[1], tmp_path / "out"))


def opened(cache: Path) -> OpenFiles:
    return DeepSpecFiles().open([cache], OPTIONS)


def told(files: OpenFiles) -> str:
    return "\n".join(f"{problem.where} {problem.message}" for problem in files.problems)


def refusal(files: OpenFiles, number: int) -> str:
    with pytest.raises(ForeignFileError) as error:
        files.read(files.samples[number])
    return "\n".join(f"{problem.where} {problem.message}" for problem in error.value.problems)


def change(cache: Path, **fields: object) -> None:
    path = cache / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def change_record(cache: Path, number: int, place: int, value: int) -> None:
    """Write one value of a record: 0 the number, 1 the shard, 2 the length, then five offsets."""
    path = cache / "samples.idx"
    data = bytearray(path.read_bytes())
    record = list(struct.unpack_from("<QIIQQQQQ", data, 56 * number))
    record[place] = value
    struct.pack_into("<QIIQQQQQ", data, 56 * number, *record)
    path.write_bytes(data)


def test_a_shard_that_is_cut_while_a_sample_of_it_is_held_ends_nothing(cache: Path) -> None:
    """Of a mapped file the rows would be gone, and the process with them."""
    files = opened(cache)
    cut_while_held(files)
    assert "expected" in refusal(files, 0)


def test_an_export_comes_back_bit_for_bit(exported: tuple[str, Path]) -> None:
    reference, cache = exported
    files, snapshot = opened(cache), open_dataset(reference).snapshot()
    assert files.problems == []
    assert files.claimed == NAMES
    assert [listed.number for listed in files.samples] == [0, 1, 2, 3]
    assert files.samples[1].name == "shard-00000.bin[1]"
    for listed, sample_id in zip(files.samples, row_ids(cache), strict=True):
        row, sample = files.read(listed), snapshot.read(sample_id)
        assert row.token_ids.dtype == np.int64
        assert np.array_equal(row.token_ids, sample.tokens["input_ids"])
        assert row.loss_mask is not None
        assert np.array_equal(row.loss_mask, sample.tokens["loss_mask"])
        for slot, name in zip(row.slots, NAMES, strict=True):
            assert slot.rows.dtype == sample.tensors[name].dtype
            assert slot.rows.tobytes() == sample.tensors[name].tobytes(), name


def test_its_manifest_may_be_named_in_place_of_its_folder(cache: Path) -> None:
    assert len(DeepSpecFiles().open([cache / "manifest.json", cache], OPTIONS).samples) == 4


def test_several_caches_have_names_of_their_own(cache: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(cache, tmp_path / "other"))
    files = DeepSpecFiles().open([cache, other], OPTIONS)
    assert len({listed.name for listed in files.samples}) == 8
    change(other, target_layer_ids=[-1, 4, 7])
    assert "expected layers [-1, 3, 7]" in told(DeepSpecFiles().open([cache, other], OPTIONS))


def test_a_folder_without_a_manifest_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="got a folder without a manifest"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "\xff"])
def test_a_manifest_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ForeignFileError, match="expected a JSON object"):
        opened(tmp_path)


def test_a_cut_shard_costs_the_samples_behind_the_cut(cache: Path) -> None:
    shard = cache / "shard-00000.bin"
    size = shard.stat().st_size
    with open(shard, "r+b") as file:
        file.truncate(size - 1)
    files = opened(cache)
    assert files.problems == []
    assert [len(files.read(listed).token_ids) for listed in files.samples[:3]]
    assert f"expected shard-00000.bin to reach to byte {size:,}, got {size - 1:,} bytes" in refusal(files, 3)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (1, 7, "expected a shard below 1, got 7"),
        (2, 0, "expected at least one token, got none"),
        (2, 2**32 - 1, "to reach to byte"),
        (3, 2**64 - 1, "input_ids expected shard-00000.bin to reach"),
        (7, 10**6, "target_last_hidden_states expected shard-00000.bin to reach"),
    ],
)
def test_a_record_that_points_outside_is_refused_alone(
    cache: Path, place: int, value: int, expected: str
) -> None:
    change_record(cache, 1, place, value)
    files = opened(cache)
    assert files.problems == []
    assert expected in refusal(files, 1)
    assert all(files.read(files.samples[number]).slots for number in (0, 2, 3))


def test_two_samples_with_the_same_bytes_are_both_refused(cache: Path) -> None:
    first = struct.unpack_from("<QIIQQQQQ", (cache / "samples.idx").read_bytes(), 0)
    change_record(cache, 2, 6, first[6])
    files = opened(cache)
    for number in (0, 2):
        assert "got some that another sample has too" in refusal(files, number)
    assert all(files.read(files.samples[number]).slots for number in (1, 3))


def test_a_gap_in_the_numbering_is_refused_whole(cache: Path) -> None:
    change_record(cache, 1, 0, 2)
    assert "samples.idx[1] expected sample_id 1, got 2" in told(opened(cache))


def test_an_index_of_another_length_is_refused_whole(cache: Path) -> None:
    index = cache / "samples.idx"
    index.write_bytes(index.read_bytes()[:-60])
    assert "expected 4 records of 56 bytes, got 164 bytes" in told(opened(cache))
    index.unlink()
    assert "expected 4 records of 56 bytes, got 0 bytes" in told(opened(cache))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"version": 1}, "expected version 2, got 1"),
        ({"hidden_dtype": "float8_e4m3fn"}, "expected hidden_dtype 'bfloat16', got 'float8_e4m3fn'"),
        ({"num_samples": 5}, "expected 5 records"),
        ({"num_shards": 2}, "expected num_shards 1, as it lists, got 2"),
        ({"hidden_size": 16}, "expected hidden_size 8 of tiny, got 16"),
        ({"hidden_size": None}, "expected hidden_size 8 of tiny, got None"),
        ({"target_layer_ids": [3, 2]}, "expected target_layer_ids that ascend"),
        ({"target_layer_ids": [1, 2, 8]}, "from -1 to 7, got [1, 2, 8]"),
        ({"target_layer_ids": "all"}, "expected target_layer_ids that ascend"),
        ({"shards": [{"shard_id": 1, "file_name": "shard-00000.bin"}]}, "expected shard_id 0, got 1"),
        ({"shards": [{"shard_id": 0, "file_name": "gone.bin"}]}, "got 'gone.bin'"),
        (
            {"shards": [{"shard_id": 0, "file_name": "../out/shard-00000.bin"}]},
            "got '../out/shard-00000.bin'",
        ),
        ({"shards": [7]}, "expected shard_id 0, got 7"),
        ({"shards": None}, "expected num_shards 0"),
    ],
)
def test_a_manifest_that_contradicts_is_refused_whole(
    cache: Path, fields: dict[str, object], expected: str
) -> None:
    change(cache, **fields)
    assert expected in told(opened(cache))


def masked(change_mask: Callable[[bytearray], None]) -> Callable[[Path], None]:
    """Change the attention mask of the sample that is longest: 33 tokens."""

    def apply(cache: Path) -> None:
        index = (cache / "samples.idx").read_bytes()
        (record,) = [
            one
            for at in range(0, len(index), 56)
            if (one := struct.unpack_from("<QIIQQQQQ", index, at))[2] == 33
        ]
        shard = cache / "shard-00000.bin"
        data = bytearray(shard.read_bytes())
        mask = data[record[4] : record[4] + 33]
        change_mask(mask)
        data[record[4] : record[4] + 33] = mask
        shard.write_bytes(data)

    return apply


def longest(files: OpenFiles, cache: Path) -> int:
    index = (cache / "samples.idx").read_bytes()
    return [struct.unpack_from("<QII", index, at)[2] for at in range(0, len(index), 56)].index(33)


def test_padding_is_cut_where_the_attention_mask_ends(cache: Path) -> None:
    masked(lambda mask: mask.__setitem__(slice(30, 33), bytes(3)))(cache)
    files = opened(cache)
    row = files.read(files.samples[longest(files, cache)])
    assert {len(row.token_ids), *(len(slot.rows) for slot in row.slots)} == {30}
    kept = DeepSpecFiles().open([cache], ImportOptions(OPTIONS.target, padding="keep"))
    assert len(kept.read(kept.samples[longest(kept, cache)]).token_ids) == 33


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (bytes(3) + b"\1" * 30, "expected ones, then zeros to the end, got 0 at token 0 of 33"),
        (b"\1" * 10 + b"\7" * 23, "got 7 at token 10 of 33"),
        (bytes(33), "got an attention mask of zeros"),
    ],
)
def test_a_mask_that_tells_no_padding_is_refused(cache: Path, mask: bytes, expected: str) -> None:
    masked(lambda there: there.__setitem__(slice(0, 33), mask))(cache)
    files = opened(cache)
    assert expected in refusal(files, longest(files, cache))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 4 * 56 - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_no_damaged_index_leads_outside_of_the_cache(cache: Path, changes: list[tuple[int, int]]) -> None:
    index = cache / "samples.idx"
    whole = index.read_bytes()
    damaged = bytearray(whole)
    for place, value in changes:
        damaged[place] = value
    index.write_bytes(damaged)
    files = opened(cache)
    for listed in files.samples:
        try:
            row = files.read(listed)
        except ForeignFileError:
            continue
        assert {len(slot.rows) for slot in row.slots} == {len(row.token_ids)}
        assert all(np.asarray(slot.rows).tobytes() for slot in row.slots)
    index.write_bytes(whole)
