"""The frame: what is built is parsed back and read by stock loaders, and no header that lies is believed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize

from schemas.errors import RecordError
from schemas.schema import ITEM_BYTES
from service.wire.frame import WIRE_DTYPES, Entry, Frame, build_frame, head_bytes, parse_frame

ENTRIES = st.dictionaries(
    st.text("abcdefghij_0123", min_size=1, max_size=8),
    st.tuples(st.sampled_from(sorted(WIRE_DTYPES)), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    max_size=6,
).map(lambda found: [Entry(name, dtype, tuple(shape)) for name, (dtype, shape) in found.items()])


def framed(entries: list[Entry]) -> Frame:
    return build_frame(entries, {entry.name: 7 for entry in entries}, {"dataset": "demo", "version": "1"})


def small() -> dict[str, Any]:
    """Return the header of two entries, to be broken."""
    header: dict[str, Any] = json.loads(
        framed([Entry("a", "bfloat16", (2, 3)), Entry("b", "uint8", (4,))]).head[8:]
    )
    return header


def head_of(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


@given(entries=ENTRIES)
@settings(deadline=None, max_examples=60)
def test_a_frame_is_parsed_back_and_aligned(entries: list[Entry]) -> None:
    frame = framed(entries)
    assert head_bytes(frame.head[:8]) == len(frame.head)
    assert parse_frame(frame.head) == frame
    for entry, start in zip(frame.entries, frame.starts(), strict=True):
        assert start % ITEM_BYTES[entry.dtype] == 0
    body = frame.head + bytes(frame.size - len(frame.head))
    found = {name: (tuple(value["shape"]), value["dtype"]) for name, value in deserialize(body)}  # type: ignore[no-untyped-call]
    assert found == {entry.name: (entry.shape, WIRE_DTYPES[entry.dtype]) for entry in entries}


def test_a_name_given_twice_is_not_built() -> None:
    with pytest.raises(ValueError, match="'a' twice"):
        framed([Entry("a", "uint8", (1,)), Entry("a", "uint8", (1,))])


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("a", {"a": {"data_offsets": [0, 11]}}),
        ("a", {"a": {"data_offsets": [1, 13]}}),
        ("a", {"a": {"shape": [2, 4]}}),
        ("a", {"a": {"shape": [2, True]}}),
        ("a", {"a": {"shape": [-2, -3]}}),
        ("a", {"a": {"shape": 6}}),
        ("a", {"a": {"dtype": "F8_E4M3"}}),
        ("a", {"a": {"dtype": ["BF16"]}}),
        ("a", {"b": {"data_offsets": [0, 4]}}),
        ("b", {"b": {"data_offsets": [13, 17]}}),
        ("b", {"b": {"data_offsets": [12, 2**60]}}),
        ("b", {"b": {"more": 1}}),
        ("__metadata__", {"__metadata__": {"n": 1}}),
        ("crc32c", {"__metadata__": {"crc32c": "{"}}),
        ("crc32c", {"__metadata__": {"crc32c": '{"a": "0x100000000", "b": "0x1"}'}}),
        ("crc32c", {"__metadata__": {"crc32c": '{"a": 5}'}}),
        ("b", {"__metadata__": {"crc32c": '{"a": "0x00000001"}'}}),
        ("c", {"__metadata__": {"crc32c": '{"a": "0x1", "b": "0x1", "c": "0x1"}'}}),
    ],
)
def test_a_header_that_contradicts_itself_is_refused_by_name(
    where: str, change: dict[str, dict[str, object]]
) -> None:
    header = small()
    for name, values in change.items():
        header[name].update(values)
    with pytest.raises(RecordError) as raised:
        parse_frame(head_of(header))
    assert where in {problem.where for problem in raised.value.problems}


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\0" * 7,
        b"\xff" * 8,
        head_of(b"{"),
        head_of(b"[]"),
        head_of(b"{}x"),
        head_of({})[:-1],
        head_of({}) + b" ",
        head_of(b'{"a":{},"a":{}}'),
        head_of(b"[" * 100_000),
        head_of(b'{"a":5}'),
        head_of(b"\xff\xfe"),
    ],
)
def test_what_is_no_header_is_refused(head: bytes) -> None:
    with pytest.raises(RecordError):
        parse_frame(head)


@given(flip=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(deadline=None, max_examples=150)
def test_a_flipped_bit_is_refused_or_says_what_it_changed(flip: int, bit: int) -> None:
    """Nothing but `RecordError` comes out, and what is believed accounts for each byte it claims."""
    head = bytearray(framed([Entry("a", "bfloat16", (2, 3)), Entry("b", "uint8", (4,))]).head)
    head[flip % len(head)] ^= 1 << bit
    try:
        frame = parse_frame(bytes(head))
    except RecordError:
        return
    assert {entry.name for entry in frame.entries} == frame.checksums.keys()
    assert frame.size == len(frame.head) + sum(entry.n_bytes for entry in frame.entries)
