"""Pieces: any cut of a body's segments, each block read once, none larger than it may be."""

from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.store.part_reader import PartReader
from service.answers.pieces import Kept, Segment, Stored, clipped, pieces

BODY = np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8)


class Parts:
    """Stands for a part whose one sample is `BODY`; it notes what is read."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def read_bytes(
        self, row_start: int, n_tokens: int, name: str, first: int, out: NDArray[np.uint8]
    ) -> None:
        self.reads.append((first, first + len(out)))
        out[:] = BODY[first : first + len(out)]


SEGMENTS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 130), st.integers(0, 3000), st.integers(1, 900)), max_size=6
)


def made(described: list[tuple[bool, int, int, int]], part: Parts) -> tuple[list[Segment], bytes]:
    """Return segments, and the bytes that they are."""
    segments: list[Segment] = []
    whole = b""
    for is_kept, block_bytes, first, n_bytes in described:
        end = first + n_bytes
        whole += BODY[first:end].tobytes()
        reader = cast(PartReader, part)
        segments.append(
            Kept(BODY[first:end]) if is_kept else Stored(reader, 0, 1, "final", block_bytes, first, end)
        )
    return segments, whole


@given(
    described=SEGMENTS, ends=st.tuples(st.integers(0, 5400), st.integers(0, 5400)), piece=st.integers(1, 700)
)
@settings(deadline=None, max_examples=200)
def test_any_cut_in_any_pieces_is_the_slice_of_the_whole(
    described: list[tuple[bool, int, int, int]], ends: tuple[int, int], piece: int
) -> None:
    part = Parts()
    segments, whole = made(described, part)
    first, end = sorted(ends)
    cut = list(pieces(clipped(segments, first, end), piece))
    assert b"".join(one.read() for one in cut) == whole[first:end]
    largest = max((block for is_kept, block, _, _ in described if not is_kept), default=0)
    for one in cut:
        assert 0 < one.n_bytes <= max(piece, piece // 2 + largest)
        assert one.n_bytes == sum(segment.n_bytes for segment in one.segments)


@given(
    block_bytes=st.integers(1, 300),
    first=st.integers(0, 500),
    n_bytes=st.integers(1, 3000),
    piece=st.integers(1, 900),
)
@settings(deadline=None, max_examples=200)
def test_no_block_is_read_twice(block_bytes: int, first: int, n_bytes: int, piece: int) -> None:
    part = Parts()
    segments, _ = made([(False, block_bytes, first, n_bytes)], part)
    for one in pieces(segments, piece):
        one.read()
    blocks = [
        number for low, high in part.reads for number in range(low // block_bytes, -(-high // block_bytes))
    ]
    assert blocks == sorted(set(blocks))


def test_the_first_piece_holds_data_beside_a_header() -> None:
    """A block as large as a piece: the header alone would be a first piece that checks nothing."""
    part = Parts()
    segments, _ = made([(True, 1, 0, 100), (False, 1000, 0, 3000)], part)
    assert [one.n_bytes for one in pieces(segments, 1000)] == [1100, 1000, 1000]


def test_memory_of_a_piece_is_its_own() -> None:
    segments, _ = made([(True, 1, 0, 100)], Parts())
    (one,) = pieces(segments, 1000)
    first, second = np.asarray(one.read()), np.asarray(one.read())
    assert not np.shares_memory(first, BODY)
    assert not np.shares_memory(first, second)
