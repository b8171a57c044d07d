"""Our resolvers of servers against the servers' own code: over generated configs, the same boundaries.

A resolver may refuse what their code lets pass, for the reasons that `_refuses_on_purpose` names, and for
no other. It may never be clean where their code fails or feeds a draft too little.
"""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.boundary import FINAL_NORMED, name_of
from schemas.consumers.declared import at_version, members_at
from schemas.consumers.resolution import Resolution
from schemas.consumers.resolve import Shape, resolve_server
from schemas.consumers.write import Written, what_to_write
from tests.oracle import sglang_code, vllm_code
from tests.oracle.comparison import MODEL_TYPES, Case, Outcome, cases, odd_cases, sglang, vllm
from tests.oracle.vllm_code import Runner
from tests.oracle.wheels import RELEASES

SGLANG = [
    (version, architecture)
    for version in RELEASES["sglang"]
    if sglang_code.is_cached(version)
    for architecture in sorted(sglang_code.supported(version))
]
RUNNERS: tuple[Runner, ...] = ("V1", "V2")
VLLM: list[tuple[str, Runner, str]] = [
    (version, runner, architecture)
    for version in RELEASES["vllm"]
    if vllm_code.is_cached(version)
    for runner in RUNNERS
    if (version, runner) != ("0.11.0", "V2")  # which it has not
    for architecture in sorted(vllm_code.supported(version))
]
# Layers that carry a flag are marked by `layers[id]`, so an id below 0 counts from the end, as in any list.
FLAGS_A_LAYER = {
    "BailingMoeForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
}
# Nothing that these hand over can be used, whatever is written.
BROKEN = {("Gemma3ForCausalLM", version) for version in ("0.5.17", "0.5.18", "0.5.23")} | {
    ("MiniMaxM3SparseForCausalLM", version) for version in ("0.5.16", "0.5.17")
}


@pytest.mark.parametrize(("version", "architecture"), SGLANG)
@settings(deadline=None, max_examples=15)
@given(case=st.one_of(cases(), cases(), odd_cases()))
def test_sglang_is_resolved_as_it_runs(version: str, architecture: str, case: Case) -> None:
    _compare("sglang", version, architecture, case, sglang(version, architecture, case))


@pytest.mark.parametrize(("version", "runner", "architecture"), VLLM)
@settings(deadline=None, max_examples=15)
@given(case=st.one_of(cases(), cases(), odd_cases()))
def test_vllm_is_resolved_as_it_runs(version: str, runner: Runner, architecture: str, case: Case) -> None:
    _compare(f"vllm-{runner.lower()}", version, architecture, case, vllm(version, runner, architecture, case))


@pytest.mark.parametrize(("version", "architecture"), SGLANG)
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_what_is_written_for_sglang_is_what_it_feeds(
    version: str, architecture: str, data: st.DataObject
) -> None:
    n_layers, boundaries = data.draw(_asked("sglang", version))
    written = what_to_write("sglang", version, _shape(architecture, n_layers), boundaries)
    if _is_well(written):
        outcome = sglang(version, architecture, _as_written(written, n_layers))
        assert outcome.whole
        assert list(outcome.boundaries) == boundaries
    elif version != "0.4.8" and (architecture, version) not in BROKEN:
        tried = [sglang(version, architecture, case) for case in _by_hand(boundaries, n_layers, nested=True)]
        assert not any(outcome.whole and list(outcome.boundaries) == boundaries for outcome in tried)


@pytest.mark.parametrize(("version", "runner", "architecture"), VLLM)
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_what_is_written_for_vllm_is_what_it_feeds(
    version: str, runner: Runner, architecture: str, data: st.DataObject
) -> None:
    name = f"vllm-{runner.lower()}"
    n_layers, boundaries = data.draw(_asked(name, version))
    written = what_to_write(name, version, _shape(architecture, n_layers), boundaries)
    if _is_well(written):
        outcome = vllm(version, runner, architecture, _as_written(written, n_layers))
        assert outcome.whole
        assert list(outcome.boundaries) == boundaries
    elif version != "0.11.0":
        by_hand = _by_hand(boundaries, n_layers, nested=False)
        tried = [vllm(version, runner, architecture, case) for case in by_hand]
        assert not any(outcome.whole and list(outcome.boundaries) == boundaries for outcome in tried)


@pytest.mark.parametrize(("version", "architecture"), sorted({(v, a) for v, _, a in VLLM}))
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_what_is_written_for_vllm_serves_with_both_runners(
    version: str, architecture: str, data: st.DataObject
) -> None:
    n_layers, boundaries = data.draw(_asked("vllm-v1", version))
    written = what_to_write("vllm", version, _shape(architecture, n_layers), boundaries)
    if _is_well(written):
        runners: list[Runner] = [r for v, r, a in VLLM if (v, a) == (version, architecture)]
        assert {f"vllm-{runner.lower()}" for runner in runners} == set(
            members_at(at_version("vllm", version).consumer, version)
        )
        for runner in runners:
            outcome = vllm(version, runner, architecture, _as_written(written, n_layers))
            assert list(outcome.boundaries) == boundaries


@pytest.mark.parametrize(("version", "architecture"), [pair for pair in SGLANG if pair[0] != "0.4.8"])
def test_the_usual_boundaries_can_be_written_for_sglang(version: str, architecture: str) -> None:
    written = what_to_write("sglang", version, _shape(architecture, 61), [3, 31, 59])
    broken = (architecture, version) in BROKEN
    assert _is_well(written) is not broken


@pytest.mark.parametrize(("version", "architecture"), sorted({(v, a) for v, _, a in VLLM if v != "0.11.0"}))
def test_the_usual_boundaries_can_be_written_for_vllm(version: str, architecture: str) -> None:
    assert _is_well(what_to_write("vllm", version, _shape(architecture, 61), [3, 31, 59]))


def _compare(name: str, version: str, architecture: str, case: Case, theirs: Outcome) -> None:
    ours = resolve_server(name, version, _shape(architecture, case.n_layers), case.config)
    told = f"theirs {theirs}, ours {ours.wiring and ours.wiring.fc} {[str(p) for p in ours.problems]}"
    if theirs.error is None and _is_off(name, version, case):
        assert not theirs.boundaries, told
        assert ours.wiring is None or ours.wiring.fc == (FINAL_NORMED,), told
    elif not theirs.whole:
        assert ours.wiring is None or any(p.severity == "error" for p in ours.problems), told
    elif ours.wiring is not None:
        assert list(ours.wiring.fc) == [name_of(b, case.n_layers) for b in theirs.boundaries], told
    else:
        assert _refuses_on_purpose(name, version, architecture, ours, theirs), told


def _refuses_on_purpose(
    name: str, version: str, architecture: str, ours: Resolution, theirs: Outcome
) -> bool:
    """Say whether a refusal of what their code lets pass is one of the two that are meant."""
    errors = [problem for problem in ours.problems if problem.severity == "error"]
    if {problem.kind for problem in errors} == {"slots"}:
        # Their target captures, but the draft of that release has an input layer for three.
        return not at_version(name, version).consumer.width and theirs.asked != 3
    below_zero = any(
        "no layer reads that" in problem.message and "[-" in problem.message for problem in errors
    )
    return name == "sglang" and architecture in FLAGS_A_LAYER and below_zero


def _is_off(name: str, version: str, case: Case) -> bool:
    """Say whether their code captures nothing, because the config says so."""
    if name == "sglang":
        return not sglang_code.ids_from(version, case.config)[0]
    runner: Runner = "V1" if name == "vllm-v1" else "V2"
    return not vllm_code.uses_aux(version, runner, case.config)


@st.composite
def _asked(draw: st.DrawFn, name: str, version: str) -> tuple[int, list[int]]:
    """The depth of a target and ascending boundaries on it: as many as the release's drafts take."""
    n_layers = draw(st.integers(6, 64))
    n = draw(st.integers(1, 4) if at_version(name, version).consumer.width else st.just(3))
    among = draw(st.sampled_from([(2, n_layers - 1), (0, n_layers), (0, 4), (n_layers - 4, n_layers)]))
    return n_layers, sorted(draw(st.lists(st.integers(*among), min_size=n, max_size=n, unique=True)))


def _by_hand(boundaries: Sequence[int], n_layers: int, nested: bool) -> list[Case]:
    """What a person might try: ids as boundaries or one less, as they are, from the end, or turned by one."""
    lists = [[b - shift for b in boundaries] for shift in (0, 1)]
    turned = [order for ids in lists for order in (ids, ids[::-1], [*ids[1:], ids[0]])]
    key = "eagle_aux_hidden_state_layer_ids"
    return [Case({"eagle_config": {key: ids}} if nested else {key: ids}, n_layers) for ids in turned]


def _as_written(written: Written, n_layers: int) -> Case:
    return Case(json.loads(written.snippet or "{}"), n_layers)


def _is_well(written: Written) -> bool:
    return not any(problem.severity == "error" for problem in written.problems)


def _shape(architecture: str, n_layers: int) -> Shape:
    return Shape(model_type=MODEL_TYPES[architecture], n_layers=n_layers)
