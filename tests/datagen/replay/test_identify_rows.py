"""Slots pieced together of own rows, shifted ones, another sample's, zeros and noise: each row is told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datagen.adapters.foreign_samples import ForeignSample, Slot
from datagen.replay.identify_answer import Identified
from datagen.replay.identify_passes import identify_samples
from datagen.replay.identify_rows import States
from datagen.replay.identify_slots import pieces_of
from datagen.replay.identify_sources import Ids, KnownSample
from schemas.boundary import all_names
from schemas.problem import Problem
from schemas.schema import DType
from schemas.target import Target
from tests.builders import tiny_target

H, L = 16, 4
KINDS = ("right", "moved", "sample", "layer", "zeros", "nothing")


@dataclass
class MadeUp:
    """A target whose states are random, the same for the same ids."""

    routes: bool = False
    dtype: DType = "float32"
    said: str = "random"
    target: Target = field(default_factory=lambda: tiny_target(L, H))

    def states(self, token_ids: Ids) -> States | Problem:
        rng = np.random.default_rng(token_ids.tolist())
        return {name: rng.normal(size=(len(token_ids), H)).astype(np.float32) for name in all_names(L)}

    def samples(self) -> Iterator[KnownSample]:
        yield from ()


def own(ids: list[int], name: str) -> NDArray[np.float32]:
    states = MadeUp().states(np.array(ids))
    assert not isinstance(states, Problem)
    return np.asarray(states[name], np.float32)


def told(
    rows: NDArray[np.float32], ids: list[int], others: list[list[int]], routes: bool = False
) -> Identified:
    samples = [ForeignSample("mine", "test", np.array(ids), (Slot("s", rows),))]
    for number, other in enumerate(others):
        samples.append(
            ForeignSample(f"other{number}", "test", np.array(other), (Slot("s", own(other, "layer2")),))
        )
    return identify_samples(iter(samples), MadeUp(routes=routes))


@settings(deadline=None, max_examples=40)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(1, 12)),
        min_size=1,
        max_size=6,
    ),
    offset=st.integers(-5, 5).filter(bool),
    seed=st.integers(0, 2**16),
)
def test_every_row_of_a_patchwork_is_told(pieces: list[tuple[str, int]], offset: int, seed: int) -> None:
    n_tokens = sum(length for _, length in pieces) + 10
    ids, other = [1, seed, *range(n_tokens - 2)], [2, seed, *range(n_tokens)]
    rng = np.random.default_rng(seed)
    rows = own(ids, "layer2").copy()
    sources = {
        "moved": np.roll(own(ids, "layer2"), -offset, axis=0),
        "sample": own(other, "layer2")[:n_tokens],
        "layer": own(ids, "layer3"),
        "zeros": np.zeros_like(rows),
        "nothing": rng.normal(size=rows.shape).astype(np.float32) * 3,
    }
    expected = ["right"] * n_tokens
    at = 5
    for kind, length in pieces:
        if kind != "right":
            rows[at : at + length] = sources[kind][at : at + length]
            expected[at : at + length] = [kind] * length
        at += length
    answer = told(rows, ids, [other]).slots[0]
    got = [run.kind for run in answer.runs for _ in range(run.n_rows)]
    named = answer.found and answer.found.name
    if named == "layer3":  # more rows are of that layer than of this one
        turned = {"right": "layer", "moved": "layer", "layer": "right"}
        assert got == [turned.get(kind, kind) for kind in expected]
        return
    assert named == "layer2"
    assert got == expected
    assert {run.offset for run in answer.runs if run.kind == "moved"} <= {offset}


@pytest.mark.parametrize(("n_rows", "severity"), [(1, "note"), (8, "error")])
def test_rows_that_are_a_little_off_are_few_or_a_problem(n_rows: int, severity: str) -> None:
    ids = list(range(60))
    rows = own(ids, "layer1").copy()
    rows[10 : 10 + n_rows] *= 1.12
    answer = told(rows, ids, []).slots[0]
    assert answer.found is not None
    assert answer.found.name == "layer1"
    (problem,) = answer.problems
    assert (problem.kind, problem.severity) == ("off", severity)
    assert "off by up to 12.0%" in problem.message


def test_a_router_may_send_few_tokens_elsewhere() -> None:
    ids = list(range(100))
    rows = own(ids, "layer1").copy()
    rows[[3, 50]] *= 1.4
    assert {problem.kind for problem in told(rows, ids, []).errors} == {"nothing"}
    assert not told(rows, ids, [], routes=True).errors
    rows[60:70] *= 1.4
    assert {problem.kind for problem in told(rows, ids, [], routes=True).errors} == {"off"}


def test_without_a_target_the_narrowest_slot_is_the_width() -> None:
    slots = (Slot("aux", np.ones((5, 3 * H), np.float32)), Slot("last", np.ones((5, H), np.float32)))
    pieces, problems = pieces_of(ForeignSample("f", "test", None, slots), None)
    assert [piece.rows.shape for piece in pieces] == [(5, H)] * 4
    assert [piece.name for piece in pieces][:2] == ["aux[:, 0:16]", "aux[:, 16:32]"]
    assert not problems
