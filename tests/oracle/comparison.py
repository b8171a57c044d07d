"""A generated set of configs, and what the other systems' own code makes of each: the side to compare with.

A comparison with a resolver is then one test: draw `cases()`, call `sglang` or `vllm`, and ask that the
resolver gives the same boundaries where the outcome is whole, and refuses where it is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.oracle import sglang_code, vllm_code

KEY = "eagle_aux_hidden_state_layer_ids"

# The `model_type` in a target's config for each architecture that is run.
MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "KimiK25ForConditionalGeneration": "kimi_k25",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "GptOssForCausalLM": "gpt_oss",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma4ForCausalLM": "gemma4_text",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiniMaxM3SparseForCausalLM": "minimax_m3",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl",
    "ApertusForCausalLM": "apertus",
    "BailingMoeForCausalLM": "bailing_moe",
    "ExaoneMoEForCausalLM": "exaone_moe",
    "LongcatFlashForCausalLM": "longcat_flash",
}

_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Case:
    """A draft's config and the depth of its target."""

    config: dict[str, Any]
    n_layers: int


@dataclass(frozen=True)
class Outcome:
    """What their code feeds (`boundaries`, in the order of the `fc` input), or the error that it ends with.

    `asked` is how many the config asks for: a draft's `fc` is as wide, so fewer boundaries cannot be served.
    """

    boundaries: tuple[int, ...]
    asked: int
    error: str | None = None

    @property
    def whole(self) -> bool:
        return self.error is None and len(self.boundaries) == self.asked


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Configs with ids at the top level, nested, at both places or nowhere; in the depth and beyond it."""
    n_layers = draw(st.integers(6, 64))
    ids = ids_of(n_layers)
    config: dict[str, Any] = {}
    if draw(st.booleans()):
        config[KEY] = draw(ids)
    if draw(st.booleans()):
        config["eagle_config"] = {KEY: draw(ids)}
    return Case(config, n_layers)


def ids_of(n_layers: int) -> st.SearchStrategy[list[int]]:
    """Lists of ids as people write them, those that a rule may guess by, and any others."""
    inside = st.lists(st.integers(2, n_layers - 2), min_size=1, max_size=4, unique=True).map(sorted)
    three = st.lists(st.integers(0, n_layers - 1), min_size=3, max_size=3, unique=True).map(sorted)
    return st.one_of(
        st.lists(st.integers(-2, n_layers + 1), min_size=1, max_size=5),
        three,
        three.flatmap(st.permutations).map(list),
        inside.map(lambda ids: [1, *ids]),
        inside.map(lambda ids: [*ids, n_layers - 1]),
        inside.map(lambda ids: [*ids, n_layers]),
        inside.map(lambda ids: [-1, *ids]),
    )


@st.composite
def odd_cases(draw: st.DrawFn) -> Case:
    """Configs in which something else stands where ids are looked for, or capture is turned off."""
    n_layers = draw(st.integers(6, 64))
    ids = st.just([2, 3, n_layers - 2])
    odd: st.SearchStrategy[Any] = st.one_of(st.sampled_from([None, [], 0, "", "2,3,4", 5, {}]), ids)
    flag = st.fixed_dictionaries({}, optional={"use_aux_hidden_state": st.booleans()})
    nested = st.fixed_dictionaries({}, optional={KEY: odd, "layer_ids": odd})
    both = st.tuples(nested, flag).map(lambda pair: pair[0] | pair[1])
    parent: st.SearchStrategy[Any] = st.one_of(both, both, st.sampled_from([None, [], {}, "", "x", 3]))
    config = st.fixed_dictionaries({}, optional={KEY: odd, "eagle_config": parent})
    return Case(draw(config), n_layers)


def sglang(version: str, architecture: str, case: Case) -> Outcome:
    """What SGLang's own code makes of a case."""
    run = sglang_code.captured_boundaries
    return _outcome(
        lambda: sglang_code.ids_from(version, case.config)[1],
        lambda: run(version, architecture, case.config, case.n_layers),
    )


def vllm(version: str, runner: vllm_code.Runner, architecture: str, case: Case) -> Outcome:
    """What vLLM's own code makes of a case."""
    run = vllm_code.captured_boundaries
    return _outcome(
        lambda: vllm_code.ids_from(version, runner, case.config),
        lambda: run(version, runner, architecture, case.config, case.n_layers),
    )


def _outcome(read: Callable[[], Any], run: Callable[[], list[int]]) -> Outcome:
    asked = 3
    try:
        ids = read()
        asked = len(ids) if ids and isinstance(ids, list | tuple) else 3
        return Outcome(tuple(run()), asked)
    except _ERRORS as error:
        return Outcome((), asked, f"{type(error).__name__}: {error}")
