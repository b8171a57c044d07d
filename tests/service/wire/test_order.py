"""The epoch order: published vectors, and that it depends on nothing but ids, seed and epoch."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.wire.order import epoch_order, order_keys

PLAIN = [b"4", b"3", b"0", b"1", b"2"]  # in the order of their hashes


def ids_of(texts: list[bytes]) -> NDArray[np.uint8]:
    rows = sorted(hashlib.sha256(text).digest() for text in texts)
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 32)


@pytest.mark.parametrize(
    ("seed", "epoch", "keys", "order"),
    [
        (
            0,
            0,
            [
                0x72620CBBBFF04043,
                0x2CDA65954FFB7603,
                0xAD19A30CCB187E5C,
                0x1F88882ED1728922,
                0x9B40E8F3BC20F39F,
            ],
            [3, 1, 0, 4, 2],
        ),
        (
            7,
            3,
            [
                0xF8B80CDFFFDBDA9E,
                0x799D6C8207F1CFC0,
                0xFC1FA6582B3CABDF,
                0x5CEE55A2EF5598F7,
                0x31B48EC6202241BA,
            ],
            [4, 3, 1, 0, 2],
        ),
    ],
)
def test_published_vectors(seed: int, epoch: int, keys: list[int], order: list[int]) -> None:
    """Five samples whose ids are the sha256 of the digits 0 to 4."""
    ids = ids_of(PLAIN)
    assert order_keys(ids, seed, epoch).tolist() == keys
    assert epoch_order(ids, seed, epoch).tolist() == order


def test_the_vectors_hold_for_plain_integers() -> None:
    """The definition, written without numpy."""
    top = 2**64 - 1

    def mix(word: int) -> int:
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & top
        word = (word ^ word >> 27) * 0x94D049BB133111EB & top
        return word ^ word >> 31

    digest = hashlib.sha256(b"strata.order.v1\x0012\x0034").digest()
    k0, k1 = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
    ids = ids_of([str(i).encode() for i in range(100)])
    expected = [mix(mix(int.from_bytes(bytes(row[:8]), "big") ^ k0) ^ k1) for row in ids]
    assert order_keys(ids, 12, 34).tolist() == expected


@given(n=st.integers(0, 200), seed=st.integers(-3, 2**70), epoch=st.integers(0, 9), kept=st.randoms())
def test_leaving_samples_out_keeps_the_order_of_the_others(
    n: int, seed: int, epoch: int, kept: object
) -> None:
    ids = ids_of([str(i).encode() for i in range(n)])
    keep = np.array([kept.random() for _ in range(n)]) < 0.5  # type: ignore[attr-defined]
    order = epoch_order(ids, seed, epoch)
    assert sorted(order.tolist()) == list(range(n))
    whole = [bytes(ids[row]) for row in order if keep[row]]
    part = ids[keep]
    assert [bytes(part[row]) for row in epoch_order(part, seed, epoch)] == whole


def test_seeds_and_epochs_shuffle_anew() -> None:
    ids = ids_of([str(i).encode() for i in range(2000)])
    orders = [epoch_order(ids, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for number, one in enumerate(orders):
        assert abs(np.corrcoef(one, np.arange(2000))[0, 1]) < 0.1
        for other in orders[:number]:
            assert abs(np.corrcoef(np.argsort(one), np.argsort(other))[0, 1]) < 0.1
