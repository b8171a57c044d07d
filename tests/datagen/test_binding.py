"""What binds a sample to its ids: the arithmetic, what an audit set tells of it, and `embed` by its table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.checks import Audited, Binding, Calibration, calibrated, unbound
from datagen.checks.binding import MOST_ROWS, picked, standing_out
from datagen.checks.part_binding import PartBinding
from datagen.engines.base import Capture, Engine
from datagen.engines.ends import ends_of
from datagen.engines.errors import OpeningError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from datagen.prompts.prompt import Prompt
from schemas.schema import Schema
from tests.builders import tiny_schema
from tests.datagen.engines import tiny_models
from tests.datagen.prompt_builders import prompt_of, random_prompts

WIDTH, VOCABULARY = 48, 400
SCHEMA = tiny_schema()


class MadeUpEnds:
    """Ends whose head's rows are random, and whose norm changes nothing."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.table = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
        self.rows = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)

    def embed(self, token_ids: NDArray[np.integer]) -> NDArray[np.generic]:
        return np.asarray(self.table[token_ids].astype(ml_dtypes.bfloat16))

    def norm(self, final: NDArray[np.generic]) -> NDArray[np.float32]:
        return np.asarray(final, np.float32)

    def head(self, token_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        return np.asarray(self.rows[token_ids])


ENDS = MadeUpEnds()


def foreseen(ids: NDArray[np.int32], share: float = 0.5) -> Capture:
    """Return states that say what comes next, with noise beside it, and the embedding of their own tokens."""
    rng = np.random.default_rng(int(ids.sum()))
    following = np.roll(ids, -1)
    final = share * ENDS.rows[following] + rng.normal(size=(len(ids), WIDTH))
    tensors = {"embed": ENDS.embed(ids), "final": final.astype(ml_dtypes.bfloat16)}
    return Capture(ids, tensors, {})


def prompts(count: int, length: int = 40, seed: int = 0) -> list[Prompt]:
    return random_prompts([length] * count, VOCABULARY, seed)


def audited(seen: Callable[[NDArray[np.int32]], Capture]) -> tuple[Audited, ...]:
    return tuple(
        Audited(prompt.input_ids, prompt.loss_mask, seen(prompt.input_ids).tensors)
        for prompt in prompts(6, seed=9)
    )


def bound_by(seen: Callable[[NDArray[np.int32]], Capture] = foreseen) -> Binding:
    return calibrated(ENDS, SCHEMA, audited(seen))


def test_where_the_audit_set_shows_nothing_no_sample_is_looked_at_and_all_are_counted() -> None:
    binding = bound_by(lambda ids: foreseen(ids, share=0.0))
    assert binding.states is None
    assert binding.said.startswith("not by final (own next tokens stand out by ")
    some = prompts(3)
    part = PartBinding(replace(binding, by_embed=False), SCHEMA, Calibration(), some)
    another = foreseen(some[1].input_ids)
    assert part.look(some[0], replace(another, token_ids=some[0].input_ids)) == "passed"
    assert (part.counts.bound, part.counts.unbound) == (0, 1)


def test_own_states_pass_and_another_samples_are_refused_by_name() -> None:
    some = prompts(8)
    part = PartBinding(replace(bound_by(), by_embed=False), SCHEMA, Calibration(), some)
    assert [part.look(one, foreseen(one.input_ids)) for one in some] == ["passed"] * 8
    assert part.counts.bound == 8
    found = part.look(some[2], replace(foreseen(some[5].input_ids), token_ids=some[2].input_ids))
    assert not isinstance(found, str)
    assert (found.where, found.kind) == ("final", "binding")
    assert f"another sample's: those of {some[5].source} stand out by " in found.message


@pytest.mark.parametrize("step", [1, -1])
def test_states_a_token_early_or_late_are_held_for_a_second_pass(step: int) -> None:
    some = prompts(8)
    part = PartBinding(replace(bound_by(), by_embed=False), SCHEMA, Calibration(), some)
    right = foreseen(some[3].input_ids)
    shifted = replace(right, tensors={"final": np.roll(right.tensors["final"], -step, axis=0)})
    assert part.binding.look(some[3], shifted).kind == ("early" if step == 1 else "late")
    assert part.look(some[3], shifted) == "held"
    ((prompt, capture),) = part.held
    assert prompt is some[3]
    assert not np.shares_memory(capture.tensors["final"], shifted.tensors["final"])


def test_text_that_nobody_can_foresee_is_held_once_and_then_counted() -> None:
    some = prompts(40)
    part = PartBinding(replace(bound_by(), by_embed=False), SCHEMA, Calibration(), some)
    looks = [part.look(one, foreseen(one.input_ids, share=0.0)) for one in some]
    assert looks.count("held") == 1
    assert part.counts.unbound == 39


def test_a_sample_that_goes_on_with_another_one_is_not_taken_for_it() -> None:
    """Pieces of one conversation, each trained on its last turn: the beginning of both is the same."""
    (shorter,) = prompts(1, length=60)
    rest = prompts(1, length=60, seed=5)[0].input_ids
    ids = np.concatenate([shorter.input_ids, rest])
    longer = prompt_of(ids.tolist(), trained_from=60)
    final = np.concatenate([foreseen(ids).tensors["final"][:60], foreseen(ids, 0.0).tensors["final"][60:]])
    binding = replace(bound_by(), by_embed=False)
    part = PartBinding(binding, SCHEMA, Calibration(), [longer, shorter])
    capture = Capture(ids, {"final": final}, {})
    assert binding.look(longer, capture).kind == "untold"
    assert binding.says(replace(capture, token_ids=np.roll(ids, 1)), shorter) is not None
    assert part.look(longer, capture) == "held"


def test_states_behind_the_norm_bind_as_well_and_without_any_it_is_said() -> None:
    seen = [
        replace(one, tensors={"final_normed": np.asarray(ENDS.norm(one.tensors["final"]))})
        for one in audited(foreseen)
    ]
    binding = calibrated(ENDS, tiny_schema(("layer2", "final_normed")), seen)
    assert binding.states == "final_normed"
    (one,) = prompts(1)
    capture = Capture(one.input_ids, {"final_normed": foreseen(one.input_ids).tensors["final"]}, {})
    assert binding.look(one, capture).kind == "own"
    neither = calibrated(ENDS, tiny_schema(("layer2",)), audited(foreseen))
    assert neither.said == "by no last states (neither final nor final_normed is captured)"


def test_short_samples_are_counted() -> None:
    (short,) = prompts(1, length=9)
    part = PartBinding(replace(bound_by(), by_embed=False), SCHEMA, Calibration(), [short])
    assert part.look(short, foreseen(short.input_ids, share=0.0)) == "passed"
    assert (part.counts.unbound, part.held) == (1, [])


def test_embed_is_held_against_its_table_row_for_row() -> None:
    some = prompts(2)
    part = PartBinding(bound_by(), SCHEMA, Calibration(), some)
    assert "by embed (rows of the embedding table)" in part.binding.said
    right = foreseen(some[0].input_ids)
    assert part.look(some[0], right) == "passed"
    late = replace(right, tensors={**right.tensors, "embed": np.roll(right.tensors["embed"], 1, axis=0)})
    found = part.look(some[0], late)
    assert str(found) == (
        "embed: expected the embedding of its own tokens, got other rows at 4 of 4, first at token 0"
    )


def test_too_few_audit_samples_tell_nothing() -> None:
    one = audited(foreseen)[:1]
    assert calibrated(ENDS, SCHEMA, one).said.startswith("not by final (too few audit samples")
    alike = (one[0], replace(one[0]))
    assert calibrated(ENDS, SCHEMA, alike).states is None


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 30), min_size=0, max_size=90),
    st.integers(0, 90),
    st.integers(0, 90),
)
def test_picked_rows_are_few_have_other_next_tokens_and_room_on_both_sides(
    tokens: list[int], trained_from: int, end: int
) -> None:
    ids = np.asarray(tokens, np.int32)
    mask = (np.arange(len(ids)) >= trained_from).astype(np.uint8)
    at = picked(ids, mask, end)
    assert len(at) <= MOST_ROWS
    assert np.all(np.diff(at) > 0)
    assert len(set(ids[at + 1].tolist())) == len(at)
    assert all(one >= 1 and one + 2 < min(end, len(ids)) for one in at)


@settings(deadline=None, max_examples=30)
@given(st.integers(8, 24), st.integers(0, 2**20))
def test_what_is_common_to_a_row_or_a_token_changes_nothing(n_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, WIDTH)).astype(np.float32)
    heads = rng.normal(size=(n_rows, WIDTH)).astype(np.float32)
    logits = rows @ heads.T
    centred = logits - logits.mean(0) - logits.mean(1, keepdims=True) + logits.mean()
    others = centred[~np.eye(n_rows, dtype=bool)]
    expected = np.diag(centred).mean() / others.std()
    assert standing_out(rows, heads) == pytest.approx(expected, abs=1e-3)
    assert standing_out(rows, heads + rng.normal(size=WIDTH).astype(np.float32)) == pytest.approx(
        expected, abs=1e-3
    )


FAMILIES = {"llama": True, "gemma3": True, "deepseek_v3": True, "kimi_k25": True, "gpt2": False, "opt": False}


@pytest.mark.parametrize("family", FAMILIES)
def test_random_weights_are_bound_by_their_embedding_where_it_is_a_table(family: str, tmp_path: Path) -> None:
    """gpt2 and opt add positions to theirs; no random model's `final` foresees anything."""
    settings = EngineSettings(model=str(tiny_models.save(family, tmp_path / family)), device="cpu", threads=1)
    schema = Schema.declare(read_target(settings), ("embed", "final"), "bfloat16")
    engine: Engine = open_engine(settings, schema)
    some = random_prompts([30] * 6, tiny_models.VOCAB - 3)
    captures = engine.submit([one.input_ids.tolist() for one in some]).result()
    seen = [
        Audited(one.input_ids, one.loss_mask, capture.tensors)
        for one, capture in zip(some, captures, strict=True)
    ]
    binding = calibrated(ends_of(engine, settings), schema, seen)
    assert (binding.states, binding.by_embed) == (None, FAMILIES[family])
    assert "not by final (own next tokens stand out by " in binding.said
    if not binding.by_embed:
        assert "rows of the audit set are not the embedding table's" in binding.said


def test_an_engine_without_a_model_binds_nothing_and_says_so() -> None:
    settings = EngineSettings(name="synthetic", synthetic=SyntheticSettings())
    schema = Schema.declare(read_target(settings), ("final",), "bfloat16")
    with pytest.raises(OpeningError, match="the engine synthetic has no model whose head could be asked"):
        ends_of(open_engine(settings, schema), settings)
    part = PartBinding(unbound("why"), SCHEMA, Calibration(), [prompt_of(range(40))])
    assert part.look(part.prompts[0], foreseen(part.prompts[0].input_ids)) == "passed"
    assert part.counts.unbound == 1
