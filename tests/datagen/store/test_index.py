"""The index: every sample by id and in order, whatever files its rows lie in."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store.errors import CorruptError, NotFoundError
from datagen.store.index import IdSequence, Index
from datagen.store.index_table import IndexTable, PartReference, index_schema, pack_parts

PART = PartReference("ab" * 16, "cd" * 32)


def table(ids: Sequence[bytes], parts: Sequence[PartReference] = (PART,), tensors: int = 2) -> IndexTable:
    n = len(ids)
    numbers = np.arange(n)
    values = {
        "sample_id": ids,
        "prompt_id": [hashlib.sha256(i).digest() for i in ids],
        "conversation_id": [f"c{i[0]}" for i in ids],
        "part": numbers % len(parts),
        "row_start": numbers * 10,
        "n_tokens": numbers % 7 + 1,
        "n_trained": numbers % 3,
        "crc32c": [[k, 2**32 - 1] for k in range(n)],
        "norm_median": [[i[0] - 0.5, i[0] + 0.5] for i in ids],
        "norm_p99": [[i[0] + 1.5, i[0] + 2.5] for i in ids],
    }
    schema = index_schema(tensors)
    columns = [pa.array(list(values[field.name]), field.type) for field in schema]
    return IndexTable.sorted_from(pa.Table.from_arrays(columns, schema=schema), pack_parts(parts))


def read_back(written: IndexTable) -> IndexTable:
    data, file = written.encode()
    return IndexTable.decode(data, file, "index/x.parquet")


ids_of_32_bytes = st.lists(
    st.one_of(
        st.binary(min_size=32, max_size=32),
        # Ids that share their first eight bytes, and ids that end in zeros.
        st.binary(min_size=2, max_size=2).map(lambda tail: b"\x01" * 8 + tail.ljust(24, b"\0")),
    ),
    min_size=1,
    max_size=40,
    unique=True,
)


@settings(deadline=None, max_examples=60)
@given(ids_of_32_bytes, st.integers(1, 4))
def test_every_sample_is_found_and_in_order(ids: list[bytes], n_files: int) -> None:
    files = [ids[start::n_files] for start in range(n_files)]
    index = Index([read_back(table(file)) for file in files if file])
    assert list(index.sample_ids) == sorted(i.hex() for i in ids)
    for position, sample_id in enumerate(index.sample_ids):
        location = index.locate(sample_id)
        place = index.place(sample_id)
        assert place == tuple(getattr(location, name) for name in place._fields)
        assert location == index.at(position)
        assert location.sample_id == sample_id
        assert (location.part_id, location.part_sha256) == PART
        assert index.lengths[position] == location.n_tokens
    prompts = index.prompt_ids()
    assert set(prompts) == {hashlib.sha256(i).hexdigest() for i in ids}
    assert all(prompt in prompts for prompt in prompts)
    assert ids[0].hex() not in prompts


def test_a_location_holds_the_row() -> None:
    index = Index([table([bytes([k]) * 32 for k in (3, 1, 2)])])
    location = index.locate("02" * 32)
    assert (location.row_start, location.n_tokens, location.n_trained) == (20, 3, 2)
    assert location.conversation_id == "c2"
    assert location.crc32c == (2, 2**32 - 1)
    assert location.norm_median == (1.5, 2.5)
    assert location.norm_p99 == (3.5, 4.5)


@pytest.mark.parametrize("unknown", ["00" * 32, "00", "not hex", ""])
def test_an_unknown_sample_is_named(unknown: str) -> None:
    index = Index([table([b"\x01" * 32])])
    assert unknown not in index
    with pytest.raises(NotFoundError, match="no such sample"):
        index.locate(unknown)
    with pytest.raises(NotFoundError, match="got none of that id"):
        index.place(unknown)


def test_a_position_outside_is_an_error() -> None:
    index = Index([table([b"\x01" * 32])])
    for position in (-1, 1):
        with pytest.raises(IndexError, match=f"got {position}"):
            index.at(position)


def test_a_sample_in_two_files_is_damage() -> None:
    with pytest.raises(CorruptError, match="each sample once"):
        _ = Index([table([b"\x01" * 32]), table([b"\x01" * 32])]).order


def test_an_index_without_samples_is_empty() -> None:
    index = Index([])
    assert len(index) == 0
    assert list(index.sample_ids) == []
    assert len(index.positions()) == 0
    assert len(index.prompt_ids()) == 0
    assert "00" * 32 not in index


def test_norms_and_ids_stand_by_position() -> None:
    apart = Index([table([bytes([k]) * 32 for k in (3, 0)]), table([b"\x01" * 32])])
    assert apart.norms("norm_median").tolist() == [list(location.norm_median) for location in apart]
    assert apart.norms("norm_p99").tolist() == [list(location.norm_p99) for location in apart]
    assert [row.tobytes().hex() for row in apart.sample_ids.as_bytes()] == list(apart.sample_ids)
    assert apart.sample_ids[1:].as_bytes().shape == (2, 32)
    assert Index([]).norms("norm_p99").size == 0


def test_filters_give_positions() -> None:
    index = Index([table([bytes([k]) * 32 for k in range(7)])])
    assert index.positions(min_tokens=6).tolist() == [5, 6]
    assert index.positions(min_tokens=2, min_trained=2).tolist() == [2, 5]


def test_merging_keeps_every_row_and_its_part() -> None:
    other = PartReference("ef" * 16, "01" * 32)
    left = table([b"\x03" * 32, b"\x01" * 32])
    right = table([b"\x02" * 32, b"\x04" * 32], (other, PART))
    merged = Index([read_back(IndexTable.merged([left, right]))])
    apart = Index([left, right])
    assert [merged.at(k) for k in range(4)] == [apart.at(k) for k in range(4)]
    assert merged.parts() == {PART.part_id: PART.sha256, other.part_id: other.sha256}


def test_parts_that_no_row_names_are_left_out() -> None:
    other = PartReference("ef" * 16, "01" * 32)
    both = table([b"\x01" * 32, b"\x02" * 32], (PART, other))
    rest = both.without(np.array([True, False]))
    assert rest is not None
    assert list(rest.part_references()) == [other]
    assert both.without(np.array([True, True])) is None


def test_every_flipped_byte_of_a_file_is_seen() -> None:
    data, file = table([b"\x01" * 32, b"\x02" * 32]).encode()
    for at in range(0, len(data), max(1, len(data) // 50)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(CorruptError, match=r"index/x\.parquet.*damaged"):
            IndexTable.decode(bytes(changed), file, "index/x.parquet")


def test_a_file_out_of_order_is_refused() -> None:
    right = table([b"\x01" * 32, b"\x02" * 32])
    data, file = IndexTable(right.rows.take([1, 0]), right.parts).encode()
    with pytest.raises(CorruptError, match="ascending order"):
        IndexTable.decode(data, file, "index/x.parquet")


def test_ids_are_sliced_without_being_spelled() -> None:
    ids = IdSequence(np.array([bytes([k]) * 31 + b"\0" for k in (1, 2, 3)], "S32"))
    assert list(ids[1:]) == ["02" * 31 + "00", "03" * 31 + "00"]
    assert ids[0] == "01" * 31 + "00"
