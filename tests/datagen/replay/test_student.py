"""Student's t against printed tables, its own inverse, and the normal that it becomes."""

from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.replay.student import reach_of, share_within


@pytest.mark.parametrize(
    ("share", "freedom", "reach"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 5, 2.571),
        (0.95, 10, 2.228),
        (0.95, 30, 2.042),
        (0.99, 1, 63.657),
        (0.99, 3, 5.841),
        (0.99, 4, 4.604),
        (0.99, 9, 3.250),
        (0.99, 24, 2.797),
        (0.99, 120, 2.617),
        (0.999, 3, 12.924),
        (0.999, 7, 5.408),
        (0.999, 23, 3.768),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(share: float, freedom: int, reach: float) -> None:
    assert reach_of(share, freedom) == pytest.approx(reach, abs=6e-4)


@settings(deadline=None, max_examples=60)
@given(share=st.floats(0.5, 0.99999), freedom=st.integers(1, 300))
def test_the_share_within_a_reach_is_the_one_that_it_was_asked_for(share: float, freedom: int) -> None:
    assert share_within(reach_of(share, freedom), freedom) == pytest.approx(share, abs=1e-9)


def test_of_many_conversations_it_is_the_normal() -> None:
    assert reach_of(0.99, 20_000) == pytest.approx(NormalDist().inv_cdf(0.995), abs=1e-3)


@pytest.mark.parametrize(("share", "freedom"), [(1.0, 3), (-0.1, 3), (0.9, 0)])
def test_what_has_no_quantile_is_refused(share: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="expected a share"):
        reach_of(share, freedom)
