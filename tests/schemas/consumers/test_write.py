"""What is to be written, read again as the consumer would read it, gives the boundaries asked for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.resolve import Shape, ids_for, names, resolve_server, resolve_trainer
from schemas.consumers.rules import RULES, RuleName
from schemas.consumers.write import NOTHING, what_to_write
from schemas.wiring import Wiring

KIMI = Shape(model_type="kimi_k25", n_layers=61)
VERSIONS: dict[str, tuple[str | None, ...]] = {
    "sglang": ("0.4.8", "0.5.11", "0.5.16", "0.5.23"),
    "vllm": ("0.11.0", "0.20.0", "0.33.0"),
    "vllm-v1": ("0.33.0",),
    "vllm-v2": ("0.33.0",),
    "speculators": ("0.3.0", "0.4.0", "0.9.0"),
}


@settings(deadline=None, max_examples=60)
@given(rule=st.sampled_from(sorted(RULES)), boundaries=st.lists(st.integers(0, 61), min_size=1, max_size=5))
def test_ids_give_back_their_boundaries(rule: RuleName, boundaries: list[int]) -> None:
    ids = ids_for(rule, boundaries, 61)
    if ids is not None:
        assert list(RULES[rule](ids, 61).boundaries) == boundaries


def read_back(
    name: str, version: str | None, shape: Shape, snippet: str, ids: tuple[int, ...]
) -> Wiring | None:
    if name in names("server"):
        return resolve_server(name, version, shape, json.loads(snippet)).wiring
    return resolve_trainer(name, version, shape, ids=ids).wiring


@settings(deadline=None, max_examples=200)
@given(
    name=st.sampled_from(names()),
    model=st.sampled_from(["llama", "kimi_k25", "gpt_oss", "qwen3", "gemma4", "unheard_of"]),
    n_layers=st.integers(1, 64),
    data=st.data(),
)
def test_what_is_written_is_read_back(name: str, model: str, n_layers: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS.get(name, (None,))))
    boundaries = data.draw(st.lists(st.integers(0, n_layers), min_size=1, max_size=4))
    if data.draw(st.booleans()):
        boundaries = sorted(set(boundaries))
    shape = Shape(model_type=model, n_layers=n_layers)
    written = what_to_write(name, version, shape, boundaries)
    errors = [problem for problem in written.problems if problem.severity == "error"]
    if written.snippet is None or written.ids is None:
        assert errors or written.where == NOTHING
        return
    assert not errors
    wiring = read_back(name, version, shape, written.snippet, written.ids)
    assert wiring is not None
    assert list(wiring.boundaries) == boundaries


anything: st.SearchStrategy[Any] = st.lists(st.integers() | st.booleans() | st.text() | st.none(), max_size=5)


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(names()) | st.text(max_size=5), boundaries=anything)
def test_no_boundaries_raise(name: str, boundaries: Any) -> None:
    what_to_write(name, None, KIMI, boundaries)


def test_many_boundaries_are_a_problem() -> None:
    assert what_to_write("sglang", "0.5.23", KIMI, []).problems
    assert what_to_write("sglang", "0.5.23", KIMI, list(range(1, 61)) * 2).problems


def test_a_first_boundary_of_1_is_written_behind_the_others() -> None:
    written = what_to_write("sglang", "0.5.23", KIMI, [1, 31, 59])
    assert written.ids == (31, 59, 1)
    assert written.problems == ()
    alone = what_to_write("sglang", "0.5.23", KIMI, [1])
    assert alone.snippet is None
    assert "got none that mean these boundaries" in alone.problems[0].message


def test_embed_needs_an_id_of_minus_1_where_ids_are_shifted() -> None:
    written = what_to_write("sglang", "0.5.23", Shape(model_type="llama", n_layers=32), [0, 3, 16])
    assert written.ids == (-1, 2, 15)


def test_the_width_is_written_where_it_is_not_three() -> None:
    written = what_to_write("vllm", "0.33.0", KIMI, [3, 10, 31, 59])
    assert written.snippet is not None
    assert json.loads(written.snippet)["num_aux_hidden_states"] == 4


def test_a_default_needs_nothing_written() -> None:
    written = what_to_write("eagle", None, KIMI, [2, 30, 58])
    assert (written.snippet, written.where, written.problems) == (None, NOTHING, ())
    old = what_to_write("sglang", "0.4.8", Shape(model_type="llama", n_layers=32), [2, 16, 29])
    assert (old.snippet, old.where, old.problems) == (None, NOTHING, ())


REASONS: dict[str, tuple[str, str | None, list[int], str]] = {
    "an order that is sorted away": ("vllm", "0.33.0", [31, 3, 59], "captures in the order of depth"),
    "an order that is refused": ("deepspec", None, [31, 3, 59], "refuses any other order"),
    "embed": ("vllm", "0.33.0", [0, 3, 31], "embed cannot be captured by vLLM"),
    "final": ("sglang", "0.5.23", [3, 31, 61], "final cannot be captured by SGLang 0.5.23"),
    "exactly three": ("specforge", "0.2.0", [3, 31], "expected 3 boundaries for SpecForge, got 2"),
    "a fixed choice": ("eagle", None, [3, 31, 59], "reads no ids"),
    "an old version": ("vllm", "0.11.0", [3, 31, 59], "captures from kimi_k25"),
    "which of several": ("modelopt", None, [3, 31, 59], "expected one of modelopt-hf"),
    "no such boundary": ("sglang", "0.5.23", [3, 31, 62], "expected boundaries from 0 to 61, got [62]"),
    "no such consumer": ("tensorrt", None, [3, 31, 59], "expected one of sglang"),
}


@pytest.mark.parametrize("row", REASONS.values(), ids=REASONS)
def test_what_cannot_be_written_says_why(row: tuple[str, str | None, list[int], str]) -> None:
    name, version, boundaries, said = row
    written = what_to_write(name, version, KIMI, boundaries)
    assert written.snippet is None
    assert any(said in problem.message for problem in written.problems), written.problems
