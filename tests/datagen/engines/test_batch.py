"""Padding on the way in, and rows of real tokens, in memory of their own, on the way out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.engines.batch import padded

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=9), min_size=1, max_size=6))
def test_rows_come_back_end_to_end(samples: list[list[int]]) -> None:
    batch = padded([np.asarray(ids, dtype=np.int32) for ids in samples], CPU)
    assert batch.ids.shape == (len(samples), max(map(len, samples)))
    assert batch.n_rows == sum(map(len, samples))
    rows = batch.unpadded(batch.ids[:, :, None].expand(-1, -1, 3).to(torch.float32))
    assert rows.is_contiguous()
    assert rows[:, 0].tolist() == [token for ids in samples for token in ids]


@pytest.mark.parametrize("lengths", [(4, 4), (4, 2)])
def test_rows_share_no_memory_with_the_models_own(lengths: tuple[int, ...]) -> None:
    batch = padded([np.ones(length, dtype=np.int32) for length in lengths], CPU)
    hidden = torch.ones(2, 4, 3)
    rows = batch.unpadded(hidden)
    hidden.zero_()
    assert rows.min() == 1
