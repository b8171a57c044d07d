"""The order of rows hangs on the conversations alone, and no cut parts one of them."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store.errors import RefusedError
from datagen.store.trainer_rows import (
    TRAIN_SHARE,
    RowSample,
    in_rows,
    keeps_conversations,
    read_rows,
    rows_text,
    train_ratio,
)

texts = st.text(alphabet="abß\ud800", max_size=2)


@st.composite
def samples(draw: st.DrawFn) -> list[RowSample]:
    """Draw samples, several of a conversation among them."""
    conversations = draw(st.lists(texts, max_size=30))
    return [RowSample(f"{at:064x}", each, at % 7 + 1) for at, each in enumerate(conversations)]


@given(samples(), st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_rows_are_the_same_however_samples_come(drawn: list[RowSample], seed: int) -> None:
    rows, n_train = in_rows([drawn])
    shuffled = random.Random(seed).sample(drawn, len(drawn))
    assert in_rows([shuffled]) == (rows, n_train)
    assert sorted(rows) == sorted(drawn)
    told = [row.conversation_id for row in rows]
    assert len([at for at in range(1, len(told)) if told[at] != told[at - 1]]) == max(len(set(told)) - 1, 0)
    assert keeps_conversations(rows, n_train)
    if len(set(told)) > 1:
        assert 0 < n_train < len(rows)
    else:
        assert n_train == len(rows)
    # At the share, or at the first conversation after it; only the last one may be cut off before it.
    wanted = int(len(rows) * TRAIN_SHARE)
    assert n_train >= wanted or len(set(told[n_train:])) == 1
    assert all(told[at] == told[at - 1] for at in range(max(wanted, 1), n_train))


@given(st.lists(samples(), min_size=2, max_size=3))
@settings(deadline=None, max_examples=40)
def test_the_first_split_that_has_samples_is_for_training(drawn: list[list[RowSample]]) -> None:
    # No conversation is in two splits of a rule.
    groups = [
        [row._replace(conversation_id=f"{number}{row.conversation_id}") for row in group]
        for number, group in enumerate(drawn)
    ]
    rows, n_train = in_rows(groups)
    assert len(rows) == sum(map(len, groups))
    first = next((group for group in groups if group), [])
    assert sorted(rows[:n_train]) == sorted(first)


@given(samples())
@settings(deadline=None, max_examples=40)
def test_a_list_is_read_as_it_was_written(drawn: list[RowSample]) -> None:
    named = [row for row in drawn if row.conversation_id.isprintable()]
    assert list(read_rows(rows_text(named))) == named


def test_a_list_that_skips_a_row_is_refused() -> None:
    text = rows_text([RowSample("0" * 64, "a", 1), RowSample("1" * 64, "b", 1)])
    with pytest.raises(ValueError, match="expected row 0, got 1"):
        list(read_rows(b"".join(text.splitlines(keepends=True)[1:])))


@given(st.integers(1, 10**7), st.data())
@settings(deadline=None, max_examples=100)
def test_a_trainer_cuts_where_the_ratio_means(n_rows: int, data: st.DataObject) -> None:
    n_train = data.draw(st.integers(1, n_rows))
    assert int(n_rows * train_ratio(n_train, n_rows)) == n_train


@pytest.mark.parametrize("other", [RowSample("0" * 64, "a", 1), RowSample("1" * 64, "a", 1)])
def test_a_conversation_in_two_groups_is_refused(other: RowSample) -> None:
    """Of the same sample twice, as of another one of its conversation, one would be trained on."""
    group = [RowSample("0" * 64, "a", 1), RowSample("2" * 64, "b", 1)]
    with pytest.raises(RefusedError, match="expected splits that share no conversation, got 1 that"):
        in_rows([group, [other]])
