"""What a batch holds is what was stored, bit for bit, in both layouts and all dtypes."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemas.schema import DType
from service.client.errors import ProtocolError
from service.client.rows import Out, Rows
from service.client.stream import Batch
from tests.builders import tiny_schema
from tests.service.client.memory_source import MemorySource, source_of
from tests.service.client.stream.asking import FC, WIRING, stream_of

TENSORS = (*FC, "final")


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def stored_bits(array: NDArray[np.generic]) -> bytes:
    return array.tobytes()


def check_sample(
    source: MemorySource, batch: Batch, at: int, rows: tuple[slice, ...] | tuple[int, slice]
) -> None:
    sample = source.samples[batch.sample_ids[at]]
    n_tokens = len(sample.tokens["input_ids"])
    assert batch.lengths[at] == n_tokens
    for name in TENSORS:
        assert bits(batch.tensors[name][rows]) == stored_bits(sample.tensors[name])
    assert batch.input_ids[rows].tolist() == sample.tokens["input_ids"].tolist()
    assert batch.loss_mask[rows].int().tolist() == sample.tokens["loss_mask"].tolist()
    assert batch.position_ids[rows].tolist() == list(range(1, n_tokens + 1))
    assert batch.document_ids[rows].tolist() == [at] * n_tokens


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=12),
    st.sampled_from(["bfloat16", "float16", "float32"]),
    st.sampled_from([{"tokens_per_batch": 16}, {"samples_per_batch": 3}]),
    st.integers(0, 2),
)
def test_both_layouts_hold_what_was_stored(
    lengths: list[int], dtype: DType, budget: dict[str, Any], prefetch: int
) -> None:
    source = source_of(lengths, tiny_schema(TENSORS, dtype))
    seen = []
    for batch in stream_of(source, layout="packed", prefetch=prefetch, **budget):
        assert batch.offsets.tolist() == [0, *accumulate(batch.lengths.tolist())]
        for at, (first, end) in enumerate(pairwise(batch.offsets.tolist())):
            check_sample(source, batch, at, (slice(first, end),))
        seen += batch.sample_ids
    assert sorted(seen) == sorted(source.samples)
    for batch in stream_of(source, layout="padded", prefetch=prefetch, **budget):
        longest = int(batch.lengths.max())
        assert batch.tensors["final"].shape == (len(batch.lengths), longest, 8)
        for at, length in enumerate(batch.lengths.tolist()):
            check_sample(source, batch, at, (at, slice(0, length)))
            for values in (*batch.tensors.values(), batch.input_ids, batch.loss_mask, batch.position_ids):
                assert not values[at, length:].any()
            assert (batch.document_ids[at, length:] == -1).all()
        seen = [sample_id for sample_id in seen if sample_id not in batch.sample_ids]
    assert not seen


def test_tensors_stand_in_the_wirings_order_and_are_typed() -> None:
    (batch,) = stream_of(source_of([3, 4]))
    assert list(batch.tensors) == list(TENSORS)
    assert {tensor.dtype for tensor in batch.tensors.values()} == {torch.bfloat16}
    assert (batch.input_ids.dtype, batch.loss_mask.dtype) == (torch.int64, torch.bool)


def test_tensors_are_views_of_the_memory_that_was_read_into() -> None:
    (batch,) = stream_of(source_of([3, 4]))
    assert len({tensor.untyped_storage().data_ptr() for tensor in batch.tensors.values()}) == 1


def test_a_batch_that_is_kept_is_not_overwritten_by_later_ones() -> None:
    source = source_of([5, 9, 16, 3, 8, 12, 1, 1, 7] * 3)
    batches = list(stream_of(source, prefetch=3))
    for batch in batches:
        for at, (first, end) in enumerate(pairwise(batch.offsets.tolist())):
            check_sample(source, batch, at, (slice(first, end),))


class Mixed(MemorySource):
    """Hands out a batch's samples in another order than they were asked for."""

    def batch(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None, *, out: Out = None
    ) -> Rows:
        return super().batch(sample_ids[::-1], names, out=out)


def test_other_samples_than_were_asked_for_are_refused() -> None:
    source = source_of([3, 4])
    mixed = Mixed(source.schema, source.samples)
    with pytest.raises(ProtocolError, match="other samples than were asked for"):
        next(iter(stream_of(mixed)))


def test_a_cut_sample_is_its_first_tokens() -> None:
    source = source_of([40])
    (batch,) = stream_of(source, too_long="cut")
    (sample,) = source.samples.values()
    assert batch.lengths.tolist() == [16]
    assert bits(batch.tensors["layer2"]) == stored_bits(sample.tensors["layer2"][:16])
    assert batch.input_ids.tolist() == sample.tokens["input_ids"][:16].tolist()


@pytest.mark.parametrize("format", ["named", "consumer", "consumer_samples"])
def test_a_batch_moves_with_all_of_its_tensors(format: str) -> None:
    (batch,) = stream_of(source_of([3, 4]), WIRING, format=format)
    moved = batch.to("meta")
    tensors = (
        [moved.tensors["final"], moved.input_ids]
        if format == "named"
        else [
            inputs["input_ids"]
            for inputs in (moved.inputs if isinstance(moved.inputs, list) else [moved.inputs])
        ]
    )
    assert all(tensor.is_meta for tensor in tensors)
    assert moved.state == batch.state
