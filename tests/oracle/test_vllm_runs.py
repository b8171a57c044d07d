"""A real vLLM over a real model: what it stores and what it hands to a draft, against what our resolvers say.

Which tensor a slot holds is told by its numbers alone (`boundaries_of`). Each question starts vLLM anew, in
some 15 to 40 seconds. With runner V1: V2 asks for Triton.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from deploy.demo.model import MODEL
from schemas.boundary import FINAL, place_of
from schemas.consumers.resolve import Shape, resolve_server, resolve_trainer
from tests.oracle import speculators_code, vllm_cpu
from tests.oracle.boundaries_of import (
    FAR,
    SAME,
    Named,
    NoSuchTensorError,
    fc_of,
    identify,
    named_tensors,
)
from tests.oracle.comparison import KEY
from tests.oracle.draft_folder import plain_config, speculators_config, write_draft

TEXTS = (
    "The lighthouse keeper counted eleven ships before the fog came in, and wrote each name into his book.",
    "def mean(xs):\n    return sum(xs) / len(xs)\n\nprint(mean([1, 2, 3]))  # 2.0",
    "Speculative decoding lets a small draft propose several tokens that the target then checks in one pass.",
)
L = 30
SHAPE = Shape(model_type="llama", n_layers=L)
RUNNER = "vllm-v1"


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Token ids of three texts of different lengths."""
    if not MODEL.is_dir():
        pytest.fail(f"{MODEL.name} is not there: run make assets")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    return [tokenizer(text).input_ids for text in TEXTS]


@pytest.fixture(scope="module")
def named(prompts: list[list[int]]) -> list[Named]:
    return named_tensors(MODEL, prompts)


def test_no_two_tensors_of_the_target_are_alike(named: list[Named]) -> None:
    for tensors in named:
        assert {identify(tensor, tensors).name for tensor in tensors.values()} == set(tensors)
        assert min(identify(tensor, tensors).nearest_distance for tensor in tensors.values()) > FAR


def test_what_is_no_tensor_of_the_target_is_told(named: list[Named]) -> None:
    tensors = named[0]
    between = (tensors["layer15"] + tensors["layer16"]) / 2
    one_token_off = tensors["layer15"].clone()
    one_token_off[3] = tensors["layer15"][4]
    bent = tensors["layer15"] * (1 + 2 * SAME)
    for wrong in (between, one_token_off, bent):
        with pytest.raises(NoSuchTensorError):
            identify(wrong, tensors)
    with pytest.raises(NoSuchTensorError):  # two names for one tensor
        identify(tensors["layer15"], tensors | {"layer14": tensors["layer15"] * (1 + SAME)})


@pytest.mark.parametrize("ids", [[2, 15, 27, 30], [30, 0, 15, 2], [14, 3]], ids=str)
def test_extracted_slots_are_what_our_resolver_says(
    ids: list[int], prompts: list[list[int]], named: list[Named], tmp_path: Path
) -> None:
    answer = vllm_cpu.extract(MODEL, ids, prompts, tmp_path)
    slots = _same_for_all(answer, named)
    # The ids are numbered, ordered and taken from before the final norm as the resolver says.
    config = {KEY: ids, "num_aux_hidden_states": len(ids)}
    ours = resolve_server(RUNNER, vllm_cpu.VERSION, SHAPE, config)
    assert not ours.problems
    assert ours.wiring is not None
    assert slots == ours.wiring.fc
    assert [_boundary(name) for name in slots] == sorted(ids)
    if L in ids:
        _compare_as_made_for_speculators([id_ for id_ in ids if id_ != L], slots)


def test_vllm_dies_of_an_id_that_is_given_twice(prompts: list[list[int]], tmp_path: Path) -> None:
    ids = [27, 27, 3, 14]
    with pytest.raises(
        vllm_cpu.VllmError, match=r"size of the tensor \(4\) must match the existing size \(3\)"
    ):
        vllm_cpu.extract(MODEL, ids, prompts, tmp_path)
    for ours in (
        resolve_server(RUNNER, vllm_cpu.VERSION, SHAPE, {KEY: ids, "num_aux_hidden_states": 4}),
        resolve_trainer("speculators", "0.9.0", SHAPE, ids=ids),
    ):
        assert ours.wiring is None
        assert [problem.severity for problem in ours.problems] == ["error"]


# What a draft's config says about its layers.
DRAFTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "top level": {KEY: [26, 3, 14]},
    "nested": {"eagle_config": {KEY: [3, 14, 26]}},
    "both": {KEY: [5, 16, 28], "eagle_config": {KEY: [3, 14, 26]}},
    "first and last": {KEY: [0, 15, 30]},
    "four": {KEY: [1, 2, 3, 29], "num_aux_hidden_states": 4},
}


@pytest.mark.parametrize("said", DRAFTS)
def test_a_served_draft_is_handed_what_our_resolver_says(
    said: str, prompts: list[list[int]], named: list[Named], tmp_path: Path
) -> None:
    config = plain_config() | DRAFTS[said]
    _compare_served(config, prompts, named, tmp_path)


@pytest.mark.parametrize("ids", [None, [3, 14, 26]], ids=str)
def test_a_draft_in_speculators_format_is_handed_what_our_resolver_says(
    ids: list[int] | None, prompts: list[list[int]], named: list[Named], tmp_path: Path
) -> None:
    config = speculators_config() | ({KEY: ids} if ids is not None else {})
    _compare_served(config, prompts, named, tmp_path)


def _compare_as_made_for_speculators(ids: list[int], slots: tuple[str, ...]) -> None:
    """Its launcher asks vLLM for the ids that it is given and the last boundary."""
    fc, target = speculators_code.split_slots("0.9.0", [_boundary(name) for name in slots])
    wiring = resolve_trainer("speculators", "0.9.0", SHAPE, ids=ids).wiring
    assert wiring is not None
    assert [_boundary(name) for name in wiring.fc] == fc
    assert wiring.target is not None
    assert wiring.target.tensor == slots[-1] == FINAL
    assert target == L


def _compare_served(
    config: dict[str, Any], prompts: list[list[int]], named: list[Named], folder: Path
) -> None:
    ours = resolve_server(RUNNER, vllm_cpu.VERSION, SHAPE, config)
    assert not [problem for problem in ours.problems if problem.severity == "error"]
    assert ours.wiring is not None
    draft = folder / "draft"
    write_draft(draft, config, len(ours.wiring.fc))
    answer = vllm_cpu.serve(MODEL, draft, prompts, folder)
    assert answer.runner == "V1"
    assert _same_for_all(answer, named) == ours.wiring.fc


def _same_for_all(answer: vllm_cpu.Answer, named: Sequence[Named]) -> tuple[str, ...]:
    """The names of the slots, which must be the same for every prompt."""
    (names,) = {fc_of(states, tensors) for states, tensors in zip(answer.states, named, strict=True)}
    return names


def _boundary(name: str) -> int:
    place = place_of(name, L)
    assert isinstance(place, tuple)
    assert place.norm == "pre_norm"
    return int(place.boundary)
