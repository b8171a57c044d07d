"""Every row of the tables of how other systems wire, one case each, with its source in its id."""

from typing import Any, NamedTuple

import pytest

from schemas.consumers.resolve import Shape, resolve_server, resolve_trainer
from schemas.consumers.write import what_to_write
from schemas.wiring import Wiring

KIMI = Shape(model_type="kimi_k25", n_layers=61)
LLAMA = Shape(model_type="llama", n_layers=32)
GPT_OSS = Shape(model_type="gpt_oss", n_layers=36)
KEY = "eagle_aux_hidden_state_layer_ids"


def top(*ids: int) -> dict[str, Any]:
    return {KEY: list(ids)}


def nested(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {KEY: list(ids)}}


def trained(name: str, version: str | None, shape: Shape = KIMI, **given: Any) -> Wiring:
    """Return a trainer's wiring, which must be known."""
    resolution = resolve_trainer(name, version, shape, **given)
    assert resolution.wiring is not None, resolution.problems
    return resolution.wiring


def served(name: str, version: str, shape: Shape, config: dict[str, Any]) -> tuple[int, ...]:
    """Return the boundaries that a server feeds, which must be known."""
    resolution = resolve_server(name, version, shape, config)
    assert resolution.wiring is not None, resolution.problems
    return resolution.wiring.boundaries


class Sees(NamedTuple):
    """What the draft sees: boundaries, target, mask alignment, position start, who shifts."""

    boundaries: tuple[int, ...]
    target: str
    applies_norm: bool
    mask: str | None
    position: int | None
    shift: str = "consumer"


DEFAULT = (2, 30, 58)
# The trainer, its version, and what else it must be told since it has no default.
SEES: dict[str, tuple[str, str | None, dict[str, Any], Sees]] = {
    "EAGLE-3 official [modeling_llama_kv.py]": (
        "eagle", None, {}, Sees(DEFAULT, "final_normed", False, "same", 0),
    ),
    "speculators v1 before PR #313 [0.3.0]": (
        "speculators",
        "0.3.0",
        {"tensors": ["layer2", "layer30", "layer58", "final_normed"]},
        Sees(DEFAULT, "final_normed", False, "next", 1),
    ),
    "speculators v1 [custom_worker.py, 0.4.0]": (
        "speculators", "0.4.0", {}, Sees((3, 31, 59), "final", True, "next", 1),
    ),
    "speculators since PR #353 [0.9.0]": (
        "speculators", "0.9.0", {}, Sees(DEFAULT, "final", True, "next", 1),
    ),
    "EAGLE-1's ge_data [eagle-llm 1.2.1]": (
        "eagle-1", None, {}, Sees((61,), "final_normed", False, "same", 0),
    ),
    "SpecForge offline [0.2.0]": (
        "specforge", "0.2.0", {}, Sees(DEFAULT, "final_normed", False, "same", 0),
    ),
    "TorchSpec, sgl [git 6f21829c]": (
        "torchspec-sgl", None, {}, Sees(DEFAULT, "final_normed", False, "same", 0),
    ),
    "TorchSpec, hf [git 6f21829c]": (
        "torchspec-hf", None, {}, Sees(DEFAULT, "final_normed", False, "same", 0),
    ),
    "TorchSpec, vllm [git 6f21829c]": (
        "torchspec-vllm", None, {}, Sees(DEFAULT, "final", True, "same", 0),
    ),
    "ModelOpt offline HF [0.47.0]": (
        "modelopt-hf", None, {}, Sees(DEFAULT, "final_normed", False, "next", 0),
    ),
    "ModelOpt offline vLLM, not flagged [0.47.0]": (
        "modelopt-vllm", None, {}, Sees((1, 29, 57), "final", False, "next", 0),
    ),
    "ModelOpt, flagged hidden_states_prenorm [0.47.0]": (
        "modelopt-flagged", None, {}, Sees(DEFAULT, "final", True, "next", 0),
    ),
    "ModelOpt streaming [Kimi-K2.5 recipe]": (
        "modelopt-streaming", None, {"ids": [2, 30, 58, 61]}, Sees(DEFAULT, "final", True, "next", 0),
    ),
    "Automodel cache [git 36044ad3]": (
        "automodel", None, {}, Sees(DEFAULT, "final_normed", False, "next", None, "producer"),
    ),
    "DeepSpec cache, -1 is embed [git afdfa7c9]": (
        "deepspec", None, {"ids": [-1, 2, 30]}, Sees((0, 3, 31), "final_normed", False, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", SEES.values(), ids=SEES)
def test_what_the_draft_sees(row: tuple[str, str | None, dict[str, Any], Sees]) -> None:
    name, version, given, sees = row
    wiring = trained(name, version, **given)
    assert wiring.target is not None
    seen = Sees(
        wiring.boundaries,
        wiring.target.tensor,
        wiring.target.applies_norm,
        wiring.mask_alignment,
        wiring.position_start,
        wiring.token_shift or "",
    )
    assert seen == sees


# Which ids mean boundaries 3, 31 and 59.
CONVENTION: dict[str, tuple[str, str | None, Shape, list[int]]] = {
    "speculators v1: after layer id": ("speculators", "0.4.0", KIMI, [2, 30, 58, 60]),
    "speculators now: vLLM's id": ("speculators", "0.9.0", KIMI, [3, 31, 59]),
    "SpecForge, Llama: id + 1": ("specforge", "0.2.0", Shape(model_type="llama", n_layers=61), [2, 30, 58]),
    "SpecForge, Kimi, first id not 1: id": ("specforge", "0.2.0", KIMI, [3, 31, 59]),
    "TorchSpec, hf: id + 1": ("torchspec-hf", None, KIMI, [2, 30, 58]),
    "TorchSpec, sgl: id + 1": ("torchspec-sgl", None, KIMI, [2, 30, 58]),
    "TorchSpec, vllm: id + 1": ("torchspec-vllm", None, KIMI, [2, 30, 58]),
    "ModelOpt HF: id + 1": ("modelopt-hf", None, KIMI, [2, 30, 58]),
    "ModelOpt vLLM: id": ("modelopt-vllm", None, KIMI, [3, 31, 59]),
    "ModelOpt streaming: id": ("modelopt-streaming", None, KIMI, [3, 31, 59, 61]),
    "Automodel: id + 1": ("automodel", None, KIMI, [2, 30, 58]),
    "DeepSpec: id + 1": ("deepspec", None, KIMI, [2, 30, 58]),
}


@pytest.mark.parametrize("row", CONVENTION.values(), ids=CONVENTION)
def test_which_ids_mean_3_31_59(row: tuple[str, str | None, Shape, list[int]]) -> None:
    name, version, shape, ids = row
    assert trained(name, version, shape, ids=ids).boundaries == (3, 31, 59)


def test_the_incident_in_the_last_row() -> None:
    wiring = trained("speculators", "0.4.0", tensors=["embed", "layer3", "layer31", "layer59"])
    assert wiring.fc == ("embed", "layer3", "layer31")
    assert wiring.target is not None
    assert wiring.target.tensor == "layer59"
    assert served("sglang", "0.5.23", KIMI, nested(3, 31, 59)) == (3, 31, 59)


ORDER: dict[str, tuple[str, str, Shape, dict[str, Any]]] = {
    "vLLM sorts since 0.30 [EagleModelMixin]": ("vllm", "0.33.0", LLAMA, top(28, 2, 16)),
    "vLLM walks the layers before [llama.py]": ("vllm-v1", "0.17.0", LLAMA, top(28, 2, 16)),
    "SGLang, if i in layers_to_capture [llama.py]": ("sglang", "0.5.23", LLAMA, nested(27, 1, 15)),
}


@pytest.mark.parametrize("row", ORDER.values(), ids=ORDER)
def test_who_decides_the_order(row: tuple[str, str, Shape, dict[str, Any]]) -> None:
    name, version, shape, config = row
    resolution = resolve_server(name, version, shape, config)
    assert resolution.wiring is not None
    assert resolution.wiring.boundaries == (2, 16, 28)
    assert any("in the order of depth" in step for step in resolution.steps)
    refused = what_to_write(name, version, shape, [28, 2, 16])
    assert refused.snippet is None
    assert [problem.kind for problem in refused.problems] == ["order"]


# What is written for each engine, and what is fed.
WRITTEN: dict[str, tuple[str, str, Shape, dict[str, Any], tuple[int, ...]]] = {
    "vLLM, top level, as is": ("vllm", "0.33.0", KIMI, top(3, 31, 59), (3, 31, 59)),
    "vLLM, b=61 since PR #46973": ("vllm", "0.25.0", KIMI, top(3, 31, 61), (3, 31, 61)),
    "vLLM, embed of a Llama": ("vllm", "0.33.0", LLAMA, top(0, 3, 16), (0, 3, 16)),
    "SGLang since PR #25454, Kimi": ("sglang", "0.5.13", KIMI, nested(3, 31, 59), (3, 31, 59)),
    "SGLang 0.5.23, Kimi": ("sglang", "0.5.23", KIMI, nested(3, 31, 59), (3, 31, 59)),
    "SGLang 0.5.23, Kimi, first id 1": ("sglang", "0.5.23", KIMI, nested(1, 29, 57), (2, 30, 58)),
    "SGLang 0.5.23, Kimi, embed": ("sglang", "0.5.23", KIMI, nested(0, 3, 31), (0, 3, 31)),
    "SGLang before that PR, Kimi": ("sglang", "0.5.12.post1", KIMI, nested(2, 30, 58), (3, 31, 59)),
    "SGLang before that PR, Kimi, same ids": ("sglang", "0.5.11", KIMI, nested(3, 31, 59), (4, 32, 60)),
    "SGLang, Llama": ("sglang", "0.5.23", LLAMA, nested(2, 15, 28), (3, 16, 29)),
    "SGLang, MiniMax": (
        "sglang", "0.5.23", Shape(model_type="minimax_m2", n_layers=62), nested(2, 15, 28), (3, 16, 29),
    ),
    "SGLang 0.5.23, gpt-oss, below L": ("sglang", "0.5.23", GPT_OSS, nested(2, 15, 28), (3, 16, 29)),
    "SGLang 0.5.23, gpt-oss, max is L": ("sglang", "0.5.23", GPT_OSS, nested(2, 15, 36), (2, 15, 36)),
    "SGLang 0.5.16, gpt-oss": ("sglang", "0.5.16", GPT_OSS, nested(2, 15, 28), (3, 16, 29)),
    "SGLang, no config": ("sglang", "0.5.23", KIMI, {}, (2, 30, 58)),
    "SGLang, its default written out": ("sglang", "0.5.23", LLAMA, nested(2, 16, 29), (3, 17, 30)),
    "SGLang 0.5.18, MiniMax-M3-VL, no config": (
        "sglang", "0.5.18", Shape(model_type="minimax_m3_vl", n_layers=60), {}, (3, 31, 58),
    ),
    "SGLang 0.4.8 reads no ids": ("sglang", "0.4.8", LLAMA, nested(3, 16, 29), (2, 16, 29)),
    "vLLM 0.11.0 reads no ids": ("vllm", "0.11.0", LLAMA, top(3, 16, 20), (2, 16, 29)),
}  # fmt: skip


@pytest.mark.parametrize("row", WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_and_fed(row: tuple[str, str, Shape, dict[str, Any], tuple[int, ...]]) -> None:
    name, version, shape, config, boundaries = row
    assert served(name, version, shape, config) == boundaries


REFUSED: dict[str, tuple[str, str, Shape, dict[str, Any], str]] = {
    "vLLM, embed of Kimi": ("vllm", "0.33.0", KIMI, top(0, 3, 31), "embed cannot be captured"),
    "vLLM, b=61 before PR #46973": ("vllm", "0.24.0", KIMI, top(3, 31, 61), "final cannot be captured"),
    "vLLM before 0.18, embed": ("vllm-v1", "0.17.0", LLAMA, top(0, 3, 16), "embed cannot be captured"),
    "SGLang, b=61 of Kimi": ("sglang", "0.5.23", KIMI, nested(3, 31, 61), "final cannot be captured"),
    "SGLang before 0.5.22, embed of Llama": (
        "sglang", "0.5.21", LLAMA, nested(-1, 3, 16), "embed cannot be captured",
    ),
    "SGLang 0.5.17, Gemma 3": (
        "sglang", "0.5.17", Shape(model_type="gemma3_text", n_layers=34), {}, "not the residual stream",
    ),
    "SGLang 0.5.16, MiniMax-M3": (
        "sglang", "0.5.16", Shape(model_type="minimax_m3", n_layers=60), {}, "no layer is ever marked",
    ),
    "SGLang 0.5.3, DeepSeek": (
        "sglang", "0.5.3", Shape(model_type="deepseek_v3", n_layers=61), {}, "captures from deepseek_v3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_captured(row: tuple[str, str, Shape, dict[str, Any], str]) -> None:
    name, version, shape, config, said = row
    resolution = resolve_server(name, version, shape, config)
    assert resolution.wiring is None
    assert any(said in problem.message for problem in resolution.problems), resolution.problems


def test_torchspec_depends_on_what_it_captures_with() -> None:
    ids = [2, 30, 58]
    assert trained("torchspec-sgl", None, ids=ids).boundaries == (3, 31, 59)
    assert trained("torchspec-sgl", None, ids=ids, engine="sglang==0.5.23").boundaries == (2, 30, 58)
    assert trained("torchspec-vllm", None, ids=ids).boundaries == (3, 31, 59)


SNIPPETS: dict[str, tuple[str, str | None, Shape, str]] = {
    "vLLM": ("vllm", "0.33.0", KIMI, '{"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}'),
    "SGLang since PR #25454": (
        "sglang", "0.5.23", KIMI, '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 31, 59]}}',
    ),
    "SGLang before that PR": (
        "sglang", "0.5.12", KIMI, '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}',
    ),
    "SGLang, Llama": (
        "sglang", "0.5.23", Shape(model_type="llama", n_layers=61),
        '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}',
    ),
    "TorchSpec on vLLM": (
        "torchspec-vllm", None, KIMI, "inference:\n  aux_hidden_states_layers: [2, 30, 58]",
    ),
    "SpecForge": (
        "specforge", "0.2.0", Shape(model_type="llama", n_layers=61),
        '{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}',
    ),
    "ModelOpt HF dump": ("modelopt-hf", None, KIMI, "--aux-layers 2,30,58"),
    "ModelOpt vLLM dump": ("modelopt-vllm", None, KIMI, "--aux-layers 3,31,59"),
    "speculators": ("speculators", "0.9.0", KIMI, "--target-layer-ids 3 31 59"),
    "speculators v1": ("speculators", "0.4.0", KIMI, "--layer-ids 2 30 58 60"),
}  # fmt: skip


@pytest.mark.parametrize("row", SNIPPETS.values(), ids=SNIPPETS)
def test_what_to_write_for_3_31_59(row: tuple[str, str | None, Shape, str]) -> None:
    name, version, shape, snippet = row
    written = what_to_write(name, version, shape, [3, 31, 59])
    assert (written.snippet, written.problems) == (snippet, ())
