"""The forward pass by its own laws; that it is the trainers' own is tried in tests/oracle."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from datagen.replay.attention import attend
from datagen.replay.checkpoint import read_draft
from datagen.replay.draft import Draft
from datagen.replay.errors import ReplayError
from datagen.replay.flags import FLAG_NAMES, Flags
from schemas.contract import Rope
from tests.datagen.replay.tiny_drafts import (
    DRAFT_VOCAB,
    SLOTS,
    VOCAB,
    WIDTH,
    draft_ids,
    fc_norms,
    input_norm,
    plain_config,
    random_embedding,
    random_weights,
    renamed,
    speculators_config,
    write_draft,
)

N = 12


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Draft:
    folder = write_draft(tmp_path_factory.mktemp("draft"), speculators_config(), random_weights())
    return Draft.of(read_draft(folder), random_embedding())


def rows(n_rows: int = N, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, states and positions."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (n_rows,), generator=generator)
    return ids, torch.randn(n_rows, SLOTS * WIDTH, generator=generator), torch.arange(1, n_rows + 1)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_conversations_behind_one_another_are_each_alone(draft: Draft, lengths: list[int]) -> None:
    ids, states, _ = rows(sum(lengths))
    positions = torch.cat([torch.arange(1, length + 1) for length in lengths])
    together = list(draft.chain(ids, states, positions, 3, lengths=lengths))
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        alone = draft.chain(ids[part], states[part], positions[part], 3)
        for one, all_of_them in zip(alone, together, strict=True):
            torch.testing.assert_close(all_of_them.logits[part], one.logits, rtol=1e-4, atol=1e-5)
        start += length


def test_no_row_sees_a_later_one(draft: Draft) -> None:
    ids, states, positions = rows()
    before = [output.logits for output in draft.chain(ids, states, positions, 3)]
    changed, other = ids.clone(), states.clone()
    changed[8:], other[8:] = 5, 0.0
    after = [output.logits for output in draft.chain(changed, other, positions, 3)]
    for step, (one, two) in enumerate(zip(before, after, strict=True)):
        # At step s a row reads the true token s further on.
        torch.testing.assert_close(one[: 8 - step], two[: 8 - step], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(one[8 - step :], two[8 - step :], atol=1e-2)


def test_every_row_sees_the_first(draft: Draft) -> None:
    ids, states, positions = rows()
    other = states.clone()
    other[0] *= -3
    for one, two in zip(
        draft.chain(ids, states, positions, 2), draft.chain(ids, other, positions, 2), strict=True
    ):
        assert bool(((one.logits - two.logits).abs().amax(-1) > 1e-5).all())


def test_a_window_ends_what_is_seen(draft: Draft) -> None:
    ids, states, positions = rows()
    flags = Flags(rope=draft.flags.rope, window=3)
    other = states.clone()
    other[0] *= -3
    one = draft.with_flags(flags).forward(ids, states, positions).logits
    two = draft.with_flags(flags).forward(ids, other, positions).logits
    changed = (one - two).abs().amax(-1) > 1e-5
    assert changed.tolist() == [True] * 3 + [False] * (N - 3)


def test_steps_one_by_one_are_the_chain(draft: Draft) -> None:
    ids, states, positions = rows()
    chained = list(draft.chain(ids, states, positions, 3))
    output = draft.forward(ids, states, positions)
    for number, expected in enumerate(chained):
        if number:
            shifted = torch.cat([ids[number:], torch.zeros(number, dtype=torch.int64)])
            output = draft.step(output, shifted, positions + number)
        torch.testing.assert_close(output.logits, expected.logits)


def test_logits_of_the_rows_that_are_asked_for(draft: Draft) -> None:
    ids, states, positions = rows()
    whole = draft.forward(ids, states, positions)
    wanted = torch.tensor([True, False, True] * 4)
    some = draft.forward(ids, states, positions, rows=wanted)
    assert whole.logits.shape == (N, DRAFT_VOCAB)
    torch.testing.assert_close(some.logits, whole.logits[wanted], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(some.hidden, whole.hidden)


def test_both_layouts_run_alike(tmp_path: Path) -> None:
    weights, (ids, states, positions) = random_weights() | fc_norms(), rows()
    first = write_draft(tmp_path / "one", speculators_config(fc_norm=True), weights)
    second = write_draft(tmp_path / "two", plain_config(fc_norm=True), renamed(weights))
    one, two = (
        Draft.of(read_draft(folder), random_embedding()).forward(ids, states, positions).logits
        for folder in (first, second)
    )
    assert torch.equal(one, two)


def test_every_flag_matters(tmp_path: Path) -> None:
    ids, states, positions = rows()
    for norms, on in ((fc_norms(), "fc_norm"), (input_norm(), "norm_before_fc")):
        folder = write_draft(tmp_path / on, plain_config(**{on: True}), random_weights() | norms)
        draft = Draft.of(read_draft(folder), random_embedding())
        right = [output.logits for output in draft.chain(ids, 3 * states, positions, 2)]
        for name in {on, "norm_before_residual", "norm_output", "head_norm"}:
            other = draft.with_flags(draft.flags.flipped(name)).chain(ids, 3 * states, positions, 2)
            differ = [
                not torch.allclose(one.logits, two, atol=1e-2) for one, two in zip(other, right, strict=True)
            ]
            assert differ == [name != "norm_output", True], name


def test_a_head_without_norm_may_feed_back_the_normed_state(draft: Draft) -> None:
    raw = draft.flags.flipped("head_norm")
    first = draft.with_flags(raw).forward(*rows())
    second = draft.with_flags(raw.flipped("norm_output")).forward(*rows())
    assert torch.equal(first.logits, second.logits)
    normed = draft.with_flags(draft.flags.flipped("norm_output")).forward(*rows())
    assert torch.equal(second.hidden, normed.hidden)
    assert not torch.allclose(first.hidden, second.hidden, atol=1e-2)


def test_rope_and_where_positions_begin_matter(draft: Draft) -> None:
    ids, states, positions = rows()
    right = draft.forward(ids, states, positions).logits
    other = draft.with_flags(Flags(rope=Rope(theta=10.0)))
    assert not torch.allclose(other.forward(ids, states, positions).logits, right, atol=1e-3)
    linear = draft.with_flags(Flags(rope=Rope(theta=1000.0, scaling={"rope_type": "linear", "factor": 4.0})))
    assert not torch.allclose(linear.forward(ids, states, positions).logits, right, atol=1e-3)
    # Angles are relative: only the distance between rows is seen.
    torch.testing.assert_close(draft.forward(ids, states, positions - 1).logits, right, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(draft.forward(ids, states, positions * 2).logits, right, atol=1e-3)


def test_a_scaling_that_is_unknown(draft: Draft) -> None:
    with pytest.raises(ReplayError, match="expected a RoPE of transformers"):
        draft.with_flags(Flags(rope=Rope(scaling={"rope_type": "nonsense"})))


def test_a_flag_by_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="expected one of norm_before_residual"):
        Flags().flipped("norm")
    assert all(getattr(Flags().flipped(name), name) is not getattr(Flags(), name) for name in FLAG_NAMES)


def test_a_norm_without_a_weight_runs_with_ones(tmp_path: Path) -> None:
    ids, states, positions = rows()
    ones = {name: torch.ones_like(weight) for name, weight in fc_norms().items()}
    bare = Draft.of(
        read_draft(write_draft(tmp_path / "bare", plain_config(), random_weights())), random_embedding()
    )
    folder = write_draft(tmp_path / "ones", plain_config(fc_norm=True), random_weights() | ones)
    normed = Draft.of(read_draft(folder), random_embedding())
    torch.testing.assert_close(
        bare.with_flags(bare.flags.flipped("fc_norm")).forward(ids, states, positions).logits,
        normed.forward(ids, states, positions).logits,
    )


def test_its_own_embedding_comes_before_the_targets(tmp_path: Path) -> None:
    ids, states, positions = rows()
    own = random_weights() | {"embed_tokens.weight": random_embedding(seed=7)}
    mine = Draft.of(read_draft(write_draft(tmp_path / "own", plain_config(), own)), random_embedding(seed=2))
    folder = write_draft(tmp_path / "bare", plain_config(), random_weights())
    targets = Draft.of(read_draft(folder), random_embedding(seed=7))
    assert torch.equal(
        mine.forward(ids, states, positions).logits, targets.forward(ids, states, positions).logits
    )


def test_the_targets_head_by_the_map(tmp_path: Path) -> None:
    ids, states, positions = rows()
    head = torch.randn(VOCAB + 4, WIDTH, generator=torch.Generator().manual_seed(3))
    whole = random_weights() | {"lm_head.weight": head[draft_ids()]}
    bare = {name: weight for name, weight in whole.items() if name != "lm_head.weight"}
    right = Draft.of(read_draft(write_draft(tmp_path / "whole", plain_config(), whole)), random_embedding())
    checkpoint = read_draft(write_draft(tmp_path / "bare", plain_config(), bare))
    taken = Draft.of(checkpoint, random_embedding(), target_lm_head=head)
    assert torch.equal(
        taken.forward(ids, states, positions).logits, right.forward(ids, states, positions).logits
    )
    with pytest.raises(ReplayError, match=r"lm_head\.weight: expected lm_head\.weight in the draft"):
        Draft.of(checkpoint, random_embedding())


def test_a_target_that_does_not_fit(tmp_path: Path) -> None:
    bare = {name: weight for name, weight in random_weights().items() if name != "lm_head.weight"}
    checkpoint = read_draft(write_draft(tmp_path, plain_config(), bare))
    with pytest.raises(ReplayError) as caught:
        Draft.of(checkpoint, torch.ones(VOCAB, WIDTH + 1), target_lm_head=torch.ones(VOCAB - 1, WIDTH))
    assert [problem.where for problem in caught.value.problems] == ["embed", "lm_head"]


def test_rows_that_do_not_fit(draft: Draft) -> None:
    ids, states, positions = rows()
    with pytest.raises(ReplayError) as caught:
        draft.forward(ids, states[:, :-1], positions[:-1], lengths=[N, 1])
    assert [problem.where for problem in caught.value.problems] == ["states", "positions", "lengths"]
    assert f"expected the shape [{N}, {SLOTS * WIDTH}], got [{N}, {SLOTS * WIDTH - 1}]" in str(caught.value)


def test_bfloat16_is_about_the_same(draft: Draft) -> None:
    ids, states, positions = rows()
    half = Draft.of(draft.checkpoint, random_embedding(), dtype=torch.bfloat16)
    wide, narrow = (one.forward(ids, states, positions).logits.float() for one in (draft, half))
    assert float((wide - narrow).norm() / wide.norm()) < 0.05


def test_attention_by_hand() -> None:
    """Two rows, one head: row 1 reads both rows of step 0, and of step 1 its own."""
    queries = torch.zeros(2, 1, 2)
    keys = [torch.zeros(2, 1, 2), torch.zeros(2, 1, 2)]
    values = [torch.tensor([[[1.0, 0]], [[3.0, 0]]]), torch.tensor([[[5.0, 0]], [[8.0, 0]]])]
    first = attend(queries, keys[:1], values[:1], (2,), None)
    assert first[:, 0, 0].tolist() == [1.0, 2.0]
    second = attend(queries, keys, values, (2,), None)
    torch.testing.assert_close(second[:, 0, 0], torch.tensor([3.0, 4.0]))
    windowed = attend(queries, keys, values, (2,), 1)
    torch.testing.assert_close(windowed[:, 0, 0], torch.tensor([3.0, 5.5]))
