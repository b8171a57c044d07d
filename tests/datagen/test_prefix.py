"""The rows of a shared beginning: a neighbouring layer is refused by name, numerics of a batch are not."""

from collections.abc import Mapping
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.checks import Calibration, PrefixRows, beginning, candidates, sample_problems
from datagen.engines.base import Capture
from schemas.schema import Schema
from tests.builders import tiny_target
from tests.datagen.prompt_builders import prompt_of

WIDTH = 256
IDS = np.arange(8, dtype=np.int32)
NAMES = ("embed", "layer1", "layer2", "layer3")
Rows = NDArray[np.float32]


def stream(apart: float, seed: int = 0) -> dict[str, Rows]:
    """Return rows [8, H] of four boundaries, each `apart` from the one before, as in a residual stream."""
    rng = np.random.default_rng(seed)
    rows = {NAMES[0]: rng.standard_normal((len(IDS), WIDTH)).astype(np.float32)}
    for before, name in pairwise(NAMES):
        rows[name] = moved(rows[before], apart, rng)
    return rows


def moved(rows: Rows, by: float, rng: np.random.Generator) -> Rows:
    """Return rows moved by a share of their norms, in directions of chance."""
    step = rng.standard_normal(rows.shape).astype(np.float32)
    step *= by * np.linalg.norm(rows, axis=1, keepdims=True) / np.linalg.norm(step, axis=1, keepdims=True)
    return np.asarray(rows + step, np.float32)


def stored(rows: Mapping[str, Rows]) -> dict[str, NDArray[np.generic]]:
    return {name: values.astype(ml_dtypes.bfloat16) for name, values in rows.items()}


def captured(rows: Mapping[str, Rows], ids: NDArray[np.int32] = IDS) -> Capture:
    norms = {name: np.linalg.norm(values, axis=1).astype(np.float32) for name, values in rows.items()}
    return Capture(ids, stored(rows), norms)


def references(rows: Mapping[str, Rows]) -> PrefixRows:
    return PrefixRows.of("bfloat16", NAMES, [(IDS, stored(rows))])


@pytest.mark.parametrize("apart", [0.02, 0.08, 0.2, 1.0])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), noise=st.floats(0, 0.02))
def test_a_neighbour_is_refused_by_name_and_noise_is_not(apart: float, seed: int, noise: float) -> None:
    rows = stream(apart)
    rng = np.random.default_rng(seed)
    noisy = {name: moved(values, noise, rng) for name, values in rows.items()}
    assert references(rows).problems(captured(noisy)) == []
    if noise < apart / 4:
        wrong = noisy | {"layer1": noisy["layer2"], "layer2": noisy["layer1"]}
        found = references(rows).problems(captured(wrong))
        assert [problem.where for problem in found] == ["layer1", "layer2"]
        if apart > 0.02 + noise:
            assert found[0].message.endswith("they look like `layer2`")
            assert found[1].message.endswith("they look like `layer1`")


def test_rows_that_hardly_differ_between_boundaries_tell_nothing() -> None:
    rows = stream(0.002)
    swapped = rows | {"layer1": rows["layer2"], "layer2": rows["layer1"]}
    assert references(rows).problems(captured(swapped)) == []


def test_a_sample_that_begins_otherwise_has_nothing_to_be_held_against() -> None:
    rows = stream(0.2)
    other = captured({name: values[::-1] for name, values in rows.items()}, IDS + 1)
    assert references(rows).problems(other) == []


def test_only_the_beginning_that_is_shared_is_compared() -> None:
    rows = stream(0.2)
    ids = np.array([0, 1, 2, 9, 9, 9, 9, 9], np.int32)
    same = {name: np.concatenate([values[:3], values[:5]]) for name, values in rows.items()}
    assert references(rows).problems(captured(same, ids)) == []
    (problem,) = references(rows).problems(captured(same | {"layer1": same["layer3"]}, ids))
    assert "the same first 3 tokens" in problem.message
    assert problem.message.endswith("they look like `layer3`")


def test_where_position_codes_part_only_the_first_row_of_a_long_sample_is_compared() -> None:
    rows = stream(0.2)
    schema = Schema.declare(tiny_target(n_layers=4, hidden_size=WIDTH), NAMES, "bfloat16")
    long = {name: np.concatenate([values[:1], values[:0:-1]]) for name, values in rows.items()}
    prompt, calibration = prompt_of(IDS.tolist()), Calibration(prefix=references(rows))
    found = sample_problems(schema, calibration, prompt, captured(long))
    assert found is not None
    parted = Calibration(prefix=references(rows), parting=7)
    assert sample_problems(schema, parted, prompt, captured(long)) is None
    assert beginning(prompt_of(range(100)), Calibration()).n_tokens == 32
    assert beginning(prompt_of(range(100)), parted).n_tokens == 100


def test_what_ran_beside_one_as_long_is_captured_again_first() -> None:
    alone, short, pair = (
        prompt_of(range(20)),
        prompt_of(range(5)),
        [prompt_of(range(n, n + 30)) for n in (0, 9)],
    )
    chosen = candidates([[alone, short], pair])
    assert {prompt.sample_id for prompt in chosen[:2]} == {prompt.sample_id for prompt in pair}
    assert [prompt.n_tokens for prompt in chosen] == [30, 30, 20, 5]
