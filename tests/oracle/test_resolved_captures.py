"""Our resolvers of trainers for which an engine captures, against the code of both."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.boundary import name_of
from schemas.consumers.resolution import Resolution
from schemas.consumers.resolve import Shape, resolve_trainer
from schemas.consumers.write import what_to_write
from schemas.wiring import Wiring
from tests.oracle import sglang_code, specforge_code, speculators_code
from tests.oracle.comparison import KEY, MODEL_TYPES, Case, ids_of, sglang, vllm
from tests.oracle.wheels import RELEASES

SPECULATORS = RELEASES["speculators"]
LISTS = [version for version in SPECULATORS if version in ("0.3.0", "0.4.0")]
SLOTS = [version for version in SPECULATORS if version not in LISTS]
SPECFORGE = RELEASES["specforge"]
# The engines that SpecForge may capture with, and what each serves that its targets are.
ENGINES = [
    (version, architecture)
    for version in RELEASES["sglang"]
    if sglang_code.is_cached(version)
    for architecture in sorted(sglang_code.supported(version))
    if version != "0.4.8"  # which takes no ids
]
DEPTHS = st.integers(6, 64)


@pytest.mark.parametrize("version", SLOTS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ids_of_speculators_are_what_vllm_captures(version: str, data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    ids = data.draw(st.one_of(st.none(), ids_of(n_layers)))
    ours = resolve_trainer("speculators", version, _shape(n_layers), ids=ids)
    try:
        resolved = speculators_code.resolve_ids(version, ids, n_layers)
    except ValueError:
        assert ours.wiring is None
        return
    made = _made_for_speculators(version, resolved, n_layers)
    if made is None:
        assert ours.wiring is None or any(problem.severity == "error" for problem in ours.problems)
        return
    wiring = _wiring(ours)
    assert list(wiring.fc) == _names(made[0], n_layers)
    assert wiring.target is not None
    assert wiring.target.tensor == name_of(made[1], n_layers)


@pytest.mark.parametrize("version", SPECULATORS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_what_is_written_for_speculators_is_what_it_captures(version: str, data: st.DataObject) -> None:
    n_layers = data.draw(DEPTHS)
    boundaries = sorted(data.draw(st.sets(st.integers(1, n_layers - 1), min_size=1, max_size=5)))
    written = what_to_write("speculators", version, _shape(n_layers), boundaries)
    assert not [problem for problem in written.problems if problem.severity == "error"]
    if written.ids is None:
        assert boundaries == [2, n_layers // 2, n_layers - 3]
        return
    if version in LISTS:
        *fc, target = speculators_code.captured_by_v1(version, list(written.ids), n_layers)
        assert (fc, target) == (boundaries, n_layers)
    else:
        resolved = speculators_code.resolve_ids(version, list(written.ids), n_layers)
        assert _made_for_speculators(version, resolved, n_layers) == (boundaries, n_layers)


def _made_for_speculators(version: str, ids: list[int], n_layers: int) -> tuple[list[int], int] | None:
    """The (`fc` input, target) that its trainer splits off what vLLM stores; `None`: not as many as asked.

    Its launcher, which no wheel holds, was read: it appends the last boundary where the ids lack it.
    """
    launched = [*ids, *({n_layers} - set(ids))]
    stored = vllm("0.33.0", "V2", "LlamaForCausalLM", Case({KEY: launched}, n_layers))
    if not stored.whole or len(stored.boundaries) < 2:
        return None
    fc, target = speculators_code.split_slots(version, list(stored.boundaries))
    return (fc, target) if len(fc) == len(ids) else None


@pytest.mark.parametrize("version", SPECFORGE)
@pytest.mark.parametrize(("engine", "architecture"), ENGINES)
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_specforge_captures_with_its_engine_what_we_say(
    version: str, engine: str, architecture: str, data: st.DataObject
) -> None:
    n_layers = data.draw(DEPTHS)
    ids = data.draw(st.one_of(st.none(), ids_of(n_layers)))
    config = {"eagle_config": {KEY: ids}} if ids is not None else {}
    shape = _shape(n_layers, architecture)
    ours = resolve_trainer("specforge", version, shape, ids=ids, engine=f"sglang=={engine}")
    try:
        handed = specforge_code.capture_ids(version, config, n_layers)
    except ValueError:
        assert ours.wiring is None
        return
    theirs = sglang(engine, architecture, Case({"eagle_config": {KEY: handed}}, n_layers))
    if theirs.whole:
        assert list(_wiring(ours).fc) == _names(theirs.boundaries, n_layers)
    else:
        assert ours.wiring is None or any(problem.severity == "error" for problem in ours.problems)


def _wiring(resolution: Resolution) -> Wiring:
    assert resolution.wiring is not None, [str(problem) for problem in resolution.problems]
    return resolution.wiring


def _names(boundaries: Any, n_layers: int) -> list[str]:
    return [name_of(boundary, n_layers) for boundary in boundaries]


def _shape(n_layers: int, architecture: str = "LlamaForCausalLM") -> Shape:
    return Shape(model_type=MODEL_TYPES[architecture], n_layers=n_layers)
