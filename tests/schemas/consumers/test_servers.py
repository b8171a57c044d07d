"""What servers read of a draft's config: every way to write ids wrongly is a problem, never a traceback."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.resolve import Resolution, Shape, names, resolve_server

KIMI = Shape(model_type="kimi_k25", n_layers=61)
LLAMA = Shape(model_type="llama", n_layers=32)
KEY = "eagle_aux_hidden_state_layer_ids"
VERSIONS: dict[str, list[str | None]] = {
    "sglang": ["0.4.8", "0.4.10", "0.5.11", "0.5.23", None],
    "vllm": ["0.11.0", "0.20.0", "0.33.0", None],
    "vllm-v1": ["0.11.0", "0.17.0", "0.33.0"],
    "vllm-v2": ["0.17.0", "0.33.0"],
}

leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
anything = st.recursive(
    leaf,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
configs = st.fixed_dictionaries(
    {},
    optional={
        KEY: anything | st.lists(st.integers(-3, 64), max_size=5),
        "eagle_config": anything
        | st.fixed_dictionaries(
            {},
            optional={
                KEY: anything | st.lists(st.integers(-3, 64), max_size=5),
                "use_aux_hidden_state": anything,
                "layer_ids": anything,
            },
        ),
        "num_aux_hidden_states": anything,
    },
)


def kinds(resolution: Resolution) -> list[str]:
    return [problem.kind for problem in resolution.problems]


def errors(resolution: Resolution) -> list[str]:
    return [problem.kind for problem in resolution.problems if problem.severity == "error"]


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(sorted(VERSIONS)),
    config=configs | st.dictionaries(st.text(max_size=5), anything),
    model=st.sampled_from(["llama", "kimi_k25", "gpt_oss", "gemma3", "unheard_of", ""]),
    n_layers=st.integers(1, 100),
    data=st.data(),
)
def test_no_config_raises(
    name: str, config: dict[str, Any], model: str, n_layers: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(VERSIONS[name]))
    resolution = resolve_server(name, version, Shape(model_type=model, n_layers=n_layers), config)
    assert resolution.wiring is not None or errors(resolution)
    if resolution.wiring is not None:
        boundaries = resolution.wiring.boundaries
        assert list(boundaries) == sorted(set(boundaries))
    assert all(len(problem.message) < 1000 for problem in resolution.problems)


@given(name=st.text(max_size=20), version=st.none() | st.text(max_size=20))
@settings(deadline=None, max_examples=50)
def test_no_name_or_version_raises(name: str, version: str | None) -> None:
    assert resolve_server(name, version, KIMI, {}).wiring is None or name in names("server")
    resolution = resolve_server("sglang", version, KIMI, {})
    assert resolution.wiring is not None or errors(resolution)


def test_a_config_that_is_no_object() -> None:
    config: Any = [1, 2]
    assert kinds(resolve_server("sglang", "0.5.23", KIMI, config)) == ["json"]


def test_ids_where_they_are_not_read_are_said_to_be_unread() -> None:
    resolution = resolve_server("sglang", "0.5.23", KIMI, {KEY: [3, 31, 59]})
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 30, 58)
    (problem,) = resolution.problems
    assert (problem.where, problem.kind, problem.severity) == (KEY, "unread", "error")
    assert problem.repair == f"write the ids as eagle_config.{KEY} in the draft's config.json"


@pytest.mark.parametrize("server", ["sglang==0.5.23", "vllm==0.33.0", "vllm-v1==0.20.0", "sglang==0.4.5"])
@pytest.mark.parametrize(
    "config",
    [{"dflash_config": {"target_layer_ids": [1, 9]}}, {"dspark_target_layer_ids": [1, 9]}],
)
def test_the_ids_of_another_kind_of_draft_are_refused_not_guessed_at(
    server: str, config: dict[str, Any]
) -> None:
    name, _, version = server.partition("==")
    resolution = resolve_server(name, version, KIMI, config)
    assert resolution.wiring is None
    for problem in resolution.problems:
        if problem.kind != "architecture":
            assert problem.kind == "draft_kind"
            assert problem.repair is not None
            assert "id i is boundary i + 1" in problem.repair
    assert "draft_kind" in kinds(resolution)
    own = {**config, KEY: [3, 31, 59], "eagle_config": {KEY: [3, 31, 59]}}
    known = resolve_server(name, version, KIMI, own)
    assert (known.wiring is None) is (server == "sglang==0.4.5")


def test_that_no_version_was_given_is_said_once() -> None:
    assert len(resolve_server("vllm", None, KIMI, {}).assumptions) == 1


def test_unread_ids_that_name_the_default_are_a_step() -> None:
    resolution = resolve_server("sglang", "0.5.23", KIMI, {KEY: [2, 30, 58]})
    assert resolution.problems == ()
    assert any("is not read, but names the default" in step for step in resolution.steps)


def test_ids_for_two_engines_in_one_config_are_no_problem() -> None:
    config = {KEY: [3, 16, 29], "eagle_config": {KEY: [2, 15, 28]}}
    for name, version in (("sglang", "0.5.23"), ("vllm-v2", "0.33.0")):
        resolution = resolve_server(name, version, LLAMA, config)
        assert resolution.problems == ()
        assert resolution.wiring is not None
        assert resolution.wiring.boundaries == (3, 16, 29)
    both = resolve_server("vllm", "0.33.0", LLAMA, config)
    assert [problem.severity for problem in both.problems] == ["note"]
    assert both.wiring is not None
    assert both.wiring.boundaries == (3, 16, 29)


@pytest.mark.parametrize("eagle_config", ["x", [KEY], 3, [[]]])
def test_sglang_takes_its_default_over_a_malformed_eagle_config(eagle_config: object) -> None:
    resolution = resolve_server("sglang", "0.5.23", KIMI, {"eagle_config": eagle_config})
    assert kinds(resolution) == ["unread"]
    assert "says nothing, and takes its default" in resolution.problems[0].message
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 30, 58)


@pytest.mark.parametrize("eagle_config", [None, {}, {KEY: None}])
def test_no_ids_is_the_default(eagle_config: object) -> None:
    resolution = resolve_server("sglang", "0.5.23", KIMI, {"eagle_config": eagle_config})
    assert resolution.problems == ()
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 30, 58)


def test_an_empty_list_is_no_layer_for_sglang_and_no_list_for_vllm() -> None:
    assert resolve_server("sglang", "0.5.23", KIMI, {"eagle_config": {KEY: []}}).wiring is None
    resolution = resolve_server("vllm", "0.33.0", KIMI, {KEY: []})
    assert resolution.problems == ()
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 30, 58)


NONSENSE: dict[str, object] = {
    "strings": ["3", "31", "59"],
    "a string": "3,31,59",
    "huge": [3, 31, 10**5000],
    "beyond the model": [3, 31, 62],
    "negative": [-7, 3, 31],
    "booleans": [True, 31, 59],
    "fractions": [3.0, 31, 59],
    "doubles": [3, 3, 59],
    "lists": [[3], [31], [59]],
    "too many": list(range(61)) * 2,
    "an object": {"0": 3},
}


@pytest.mark.parametrize("ids", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_ids_are_problems(ids: object) -> None:
    resolution = resolve_server("sglang", "0.5.23", KIMI, {"eagle_config": {KEY: ids}})
    assert resolution.wiring is None
    assert errors(resolution)
    vllm = resolve_server("vllm-v1", "0.33.0", KIMI, {KEY: ids})
    assert errors(vllm)
    if not isinstance(ids, list):
        assert kinds(vllm) == ["unread"]
        assert vllm.wiring is not None
        assert vllm.wiring.boundaries == (2, 30, 58)


def test_a_config_of_many_megabytes_is_answered_at_once() -> None:
    text = json.dumps({"eagle_config": {KEY: list(range(1_500_000))}, KEY: {"x": "y" * 1_000_000}})
    assert len(text) > 10_000_000
    config = json.loads(text)
    start = time.process_time()
    for name in ("sglang", "vllm"):
        assert errors(resolve_server(name, "0.33.0" if name == "vllm" else "0.5.23", KIMI, config))
    assert time.process_time() - start < 20, "a resolver walks the whole of a config"


def test_deep_nesting_is_answered() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for config in ({KEY: deep}, {"eagle_config": {KEY: deep}}, {"eagle_config": deep}):
        assert errors(resolve_server("vllm", "0.33.0", KIMI, config))
        resolve_server("sglang", "0.5.23", KIMI, config)


@pytest.mark.parametrize(
    ("name", "version"), [("sglang", "0.5.23"), ("vllm-v1", "0.33.0"), ("vllm-v2", "0.33.0")]
)
def test_capture_can_be_turned_off(name: str, version: str) -> None:
    config = {"eagle_config": {"use_aux_hidden_state": False, KEY: [3, 31, 59]}, KEY: [3, 31, 59]}
    resolution = resolve_server(name, version, KIMI, config)
    assert resolution.wiring is not None
    assert resolution.wiring.fc == ("final_normed",)
    assert any("no layer is captured" in step for step in resolution.steps)


def test_a_flag_in_quotes_counts_as_true() -> None:
    config = {"eagle_config": {"use_aux_hidden_state": "false", KEY: [3, 31, 59]}}
    resolution = resolve_server("sglang", "0.5.23", KIMI, config)
    assert kinds(resolution) == ["flag"]
    assert "counts as true" in resolution.problems[0].message
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (3, 31, 59)


def test_the_flag_is_not_read_before_it_was_there() -> None:
    config = {"eagle_config": {"use_aux_hidden_state": False, KEY: [2, 15, 28]}}
    both: dict[str, Any] = {**config, KEY: [3, 16, 29]}
    for name, version in (("sglang", "0.5.7"), ("vllm-v1", "0.11.1"), ("vllm-v2", "0.32.0")):
        resolution = resolve_server(name, version, LLAMA, both)
        assert resolution.wiring is not None
        assert resolution.wiring.boundaries == (3, 16, 29), name


def test_vllm_whose_runner_is_not_known_must_agree() -> None:
    split = resolve_server("vllm", "0.33.0", KIMI, {"eagle_config": {KEY: [3, 31, 59]}})
    assert split.wiring is None
    undecided = split.problems[-1]
    assert undecided.kind == "undecided"
    assert "vllm-v1: layer3, layer31, layer59; vllm-v2: layer2, layer30, layer58" in undecided.message
    assert undecided.repair is not None
    assert "at the top level" in undecided.repair
    one = resolve_server("vllm", "0.12.0", LLAMA, {KEY: [3, 16, 29]})
    assert one.wiring is not None
    assert (one.wiring.consumer, one.wiring.boundaries) == ("vllm", (3, 16, 29))


def test_how_many_boundaries() -> None:
    four = {"eagle_config": {KEY: [3, 10, 31, 59]}}
    old = resolve_server("sglang", "0.5.11", KIMI, four)
    assert errors(old) == ["slots"]
    assert resolve_server("sglang", "0.5.23", KIMI, four).problems == ()
    wide = resolve_server("vllm-v2", "0.33.0", KIMI, {KEY: [3, 10, 31, 59]})
    assert [(problem.kind, problem.severity) for problem in wide.problems] == [("width", "note")]
    said = resolve_server("vllm-v2", "0.33.0", KIMI, {KEY: [3, 10, 31, 59], "num_aux_hidden_states": 4})
    assert said.problems == ()


def test_a_default_that_falls_together_is_refused() -> None:
    resolution = resolve_server("sglang", "0.5.23", Shape(model_type="llama", n_layers=5), {})
    assert resolution.wiring is None
    assert "captures a layer once" in resolution.problems[0].message


def test_what_is_not_known_is_assumed_aloud() -> None:
    newer = resolve_server("sglang", "0.6.0", KIMI, {})
    assert newer.wiring is not None
    assert "SGLang 0.6.0 is not declared" in newer.assumptions[0]
    none = resolve_server("sglang", None, KIMI, {})
    assert "no version of SGLang given: 0.5.23 is assumed, the newest" in none.assumptions[0]
    older = resolve_server("sglang", "0.3.0", LLAMA, {})
    assert ">=0.4.5,<0.4.9 is assumed" in older.assumptions[0]
    other = resolve_server("sglang", "0.5.23", Shape(model_type="unheard_of", n_layers=32), {})
    assert other.assumptions == ("unheard_of is not declared for SGLang: the rule of most models is assumed",)
    assert resolve_server("sglang", "0.5.23", KIMI, {}).assumptions == ()


def test_a_wrong_name_lists_the_right_ones() -> None:
    (problem,) = resolve_server("tensorrt", None, KIMI, {}).problems
    assert "sglang, vllm-v1, vllm-v2, vllm" in problem.message
    (problem,) = resolve_server("specforge", None, KIMI, {}).problems
    assert problem.message == "expected a server, got specforge, a trainer"


def test_the_steps_give_the_reason() -> None:
    new = resolve_server("sglang", "0.5.23", KIMI, {"eagle_config": {KEY: [3, 31, 59]}})
    assert any("the first id is not 1, so ids are taken as they are" in step for step in new.steps)
    old = resolve_server("sglang", "0.5.12", KIMI, {"eagle_config": {KEY: [3, 31, 59]}})
    assert any("boundary id + 1: boundaries [4, 32, 60]" in step for step in old.steps)


@pytest.mark.parametrize("said", [[], "", "x", 3])
def test_vllm_does_not_start_where_the_object_with_its_flag_is_none(said: object) -> None:
    for name, version in (("vllm-v1", "0.17.0"), ("vllm-v1", "0.33.0"), ("vllm-v2", "0.33.0")):
        resolution = resolve_server(name, version, LLAMA, {KEY: [3, 5, 7], "eagle_config": said})
        starts = name == "vllm-v2" and not said  # V2 takes what is empty for an empty object
        assert (resolution.wiring is not None) is starts
        assert starts or "fails on it at start" in resolution.problems[0].message
    assert resolve_server("vllm-v1", "0.17.0", LLAMA, {"eagle_config": None}).wiring is not None


@pytest.mark.parametrize(
    ("ids", "slot", "said"),
    [
        ([3, 31, 70], 2, "got [70] in slot 2"),
        ([-3, 31, 99], 0, "got [-3, 99] in slots 0, 2"),
        ([0, 3, 31], 0, "embed cannot be captured by vLLM (runner V2) 0.33.0 on this model, and slot 0 asks"),
    ],
)
def test_an_id_that_cannot_be_is_told_by_its_slot(ids: list[int], slot: int, said: str) -> None:
    problems = resolve_server("vllm-v2", "0.33.0", KIMI, {KEY: ids}).problems
    (problem,) = [problem for problem in problems if said in problem.message]
    assert (problem.role, problem.slot, bool(problem.repair)) == ("fc", slot, True)
