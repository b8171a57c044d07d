"""SGLang's own code: which boundaries a target captures for an EAGLE-3 draft's config."""

import ast
import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import torch

from tests.oracle.borrow import Inert, MissingCodeError, borrow, defines, find, tree
from tests.oracle.stream import Layer, Owner, Ranks, ResidualBatch, embedded, layer_returns, norm, taken
from tests.oracle.wheels import is_cached as cached
from tests.oracle.wheels import source


@dataclass(frozen=True)
class Target:
    """Where an architecture takes ids, and whose `forward` captures: (file, class) under `srt/models`."""

    setter: tuple[str, str]
    decoder: tuple[str, str]


_DEEPSEEK = Target(("deepseek_v2", "DeepseekV2ForCausalLM"), ("deepseek_v2", "DeepseekV2Model"))

TARGETS: dict[str, Target] = {
    "LlamaForCausalLM": Target(("llama", "LlamaForCausalLM"), ("llama", "LlamaModel")),
    "Qwen2ForCausalLM": Target(("qwen2", "Qwen2ForCausalLM"), ("qwen2", "Qwen2Model")),
    "Qwen3ForCausalLM": Target(("qwen3", "Qwen3ForCausalLM"), ("qwen2", "Qwen2Model")),
    "Qwen2MoeForCausalLM": Target(("qwen2_moe", "Qwen2MoeForCausalLM"), ("qwen2_moe", "Qwen2MoeModel")),
    "Qwen3MoeForCausalLM": Target(("qwen3_moe", "Qwen3MoeForCausalLM"), ("qwen2_moe", "Qwen2MoeModel")),
    "Qwen3NextForCausalLM": Target(("qwen3_next", "Qwen3NextForCausalLM"), ("qwen3_next", "Qwen3NextModel")),
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "KimiK25ForConditionalGeneration": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": _DEEPSEEK,
    "Glm4MoeForCausalLM": Target(("glm4_moe", "Glm4MoeForCausalLM"), ("glm4_moe", "Glm4MoeModel")),
    "Glm4MoeLiteForCausalLM": Target(
        ("glm4_moe_lite", "Glm4MoeLiteForCausalLM"), ("glm4_moe_lite", "Glm4MoeLiteModel")
    ),
    "GptOssForCausalLM": Target(("gpt_oss", "GptOssForCausalLM"), ("gpt_oss", "GptOssModel")),
    "Gemma3ForCausalLM": Target(("gemma3_causal", "Gemma3ForCausalLM"), ("gemma3_causal", "Gemma3TextModel")),
    "Gemma4ForCausalLM": Target(("gemma4_causal", "Gemma4ForCausalLM"), ("gemma4_causal", "Gemma4TextModel")),
    "MiniMaxM2ForCausalLM": Target(("minimax_m2", "MiniMaxM2ForCausalLM"), ("minimax_m2", "MiniMaxM2Model")),
    "MiniMaxM3SparseForCausalLM": Target(
        ("minimax_m3", "MiniMaxM3SparseForCausalLM"), ("minimax_m3", "MiniMaxM3Model")
    ),
    "MiniMaxM3SparseForConditionalGeneration": Target(
        ("minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration"), ("minimax_m3", "MiniMaxM3Model")
    ),
    "ApertusForCausalLM": Target(("apertus", "ApertusForCausalLM"), ("apertus", "ApertusModel")),
    "BailingMoeForCausalLM": Target(
        ("bailing_moe", "BailingMoEForCausalLM"), ("bailing_moe", "BailingMoEModel")
    ),
    "ExaoneMoEForCausalLM": Target(("exaone_moe", "ExaoneMoEForCausalLM"), ("exaone_moe", "ExaoneMoEModel")),
    "LongcatFlashForCausalLM": Target(
        ("longcat_flash", "LongcatFlashForCausalLM"), ("longcat_flash", "LongcatFlashModel")
    ),
}


def models(version: str) -> Path:
    return source("sglang", version) / "srt" / "models"


def is_cached(version: str) -> bool:
    return cached("sglang", version)


def supported(version: str) -> set[str]:
    """The architectures of TARGETS that can serve EAGLE-3 at that version."""
    setter = "set_eagle3_layers_to_capture"
    return {
        architecture
        for architecture, target in TARGETS.items()
        if defines(models(version) / f"{target.setter[0]}.py", f"{target.setter[1]}.{setter}")
        and _is_entry(version, architecture)
    }


def ids_from(version: str, draft_config: dict[str, Any]) -> tuple[bool, Any]:
    """(whether layers are captured at all, the ids handed to the target or None), from the draft's config."""
    hf_config = SimpleNamespace(**draft_config)
    component = (
        source("sglang", version) / "srt/model_executor/model_runner_components/spec_aux_hidden_state.py"
    )
    if component.is_file():
        return _ids_from_component(component, hf_config)
    return _ids_from_runner(source("sglang", version) / "srt/model_executor/model_runner.py", hf_config)


def layers_to_capture(version: str, architecture: str, ids: Any, n_layers: int) -> Any:
    """What the target's own setter makes of the ids."""
    return _configured(version, architecture, ids, n_layers).layers_to_capture


def captured_boundaries(
    version: str, architecture: str, draft_config: dict[str, Any], n_layers: int
) -> list[int]:
    """The boundaries that the target's own `forward` hands to the draft, in the order of the `fc` input.

    Raises what their code raises (TypeError for an embed that a release cannot capture, RuntimeError where
    fewer were captured than asked), and MissingCodeError where that release does not serve the architecture.
    """
    capture, ids = ids_from(version, draft_config)
    if not capture:
        return []
    decoder = _configured(version, architecture, ids, n_layers)
    file, name = TARGETS[architecture].decoder
    path = models(version) / f"{file}.py"
    forward = borrow(path, f"{name}.forward", _given(version))
    return taken(
        forward(decoder, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), Inert())
    )


def _configured(version: str, architecture: str, ids: Any, n_layers: int) -> Owner:
    """A stand-in decoder after the target's own setter has run on it."""
    target = TARGETS[architecture]
    config = SimpleNamespace(
        num_hidden_layers=n_layers, text_config=SimpleNamespace(num_hidden_layers=n_layers)
    )
    path = models(version) / f"{target.decoder[0]}.py"
    returns = layer_returns(find(path, f"{target.decoder[1]}.forward"))
    decoder = Owner(
        config=config,
        layers=[Layer(returns) for _ in range(n_layers)],
        start_layer=0,
        end_layer=n_layers,
        layers_to_capture=[],
        pp_group=Ranks(),
        norm=norm,
        embed_tokens=lambda *_: embedded(),
        word_embeddings=lambda *_: embedded(),
        get_input_embeddings=lambda *ids: embedded() if ids else lambda _: embedded(),
        get_per_layer_inputs=lambda *_: None,
        project_per_layer_inputs=lambda *_: None,
        finalize_norm=None,
    )
    own = f"{target.decoder[1]}.set_eagle3_layers_to_capture"
    if defines(path, own):
        decoder.__dict__["set_eagle3_layers_to_capture"] = lambda layers: borrow(path, own)(decoder, layers)
    owner = Owner(config=config, model=decoder, pp_group=Ranks())
    _setter(version, architecture)(owner, ids)
    return decoder


def _setter(version: str, architecture: str) -> Any:
    file, name = TARGETS[architecture].setter
    given = {"get_pp_group": Ranks, "get_parallel": lambda: SimpleNamespace(pp_group=Ranks())}
    method = "set_eagle3_layers_to_capture"
    setter = borrow(models(version) / f"{file}.py", f"{name}.{method}", given)
    if len(inspect.signature(setter).parameters) == 1:  # before 0.4.9 it takes no ids at all
        return lambda owner, _: setter(owner)
    if architecture != "KimiK25ForConditionalGeneration":
        return setter
    kimi = borrow(models(version) / "kimi_k25.py", f"{architecture}.{method}", given)

    def through(owner: Owner, ids: Any) -> None:
        language_model = SimpleNamespace(**{method: lambda layers: setter(owner, layers)})
        kimi(Owner(language_model=language_model), ids)

    return through


def _given(version: str) -> dict[str, Any]:
    given: dict[str, Any] = {"residual_batch": ResidualBatch(), "get_pp_group": Ranks}
    collectors = source("sglang", version) / "srt/layers/aux_hidden_states.py"
    if collectors.is_file():
        scope: dict[str, Any] = {"__name__": "aux_hidden_states"}
        exec(compile(tree(collectors), str(collectors), "exec"), scope)
        given |= {
            name: scope[name] for name in ("AuxHiddenStateList", "AuxHiddenStatePacker") if name in scope
        }
        given |= {"AuxHiddenStatePacker": _without_buffer(scope["AuxHiddenStatePacker"])}
    return given


def _without_buffer(packer: Any) -> Any:
    """Their packer, which would otherwise take a stand-in for a graph's output buffer."""
    packer.for_batch = classmethod(lambda cls, _, captures: cls(captures))
    return packer


def _ids_from_component(path: Path, hf_config: SimpleNamespace) -> tuple[bool, Any]:
    """Since 0.5.16: `_resolve_eagle_aux_hidden_state` fills in a struct."""
    draft = Owner(
        hf_config=hf_config,
        num_nextn_predict_layers=None,
        num_hidden_layers=1,
        num_attention_layers=1,
        is_hybrid_swa=False,
    )
    spec = SimpleNamespace(speculative_draft_model_path="draft", speculative_draft_model_revision=None)
    given = {
        "ModelConfig": SimpleNamespace(from_server_args=lambda *_, **__: draft),
        "get_spec": lambda: spec,
    }
    config = Owner(eagle_use_aux_hidden_state=False, eagle_aux_hidden_state_layer_ids=None)
    algorithm = Owner(is_eagle=lambda: True, is_eagle3=lambda: True)
    resolve = borrow(path, "_resolve_eagle_aux_hidden_state", given)
    arguments = {"config": config, "server_args": spec, "model_config": Owner(), "spec_algorithm": algorithm}
    taken_by = inspect.signature(resolve).parameters
    resolve(is_draft_worker=False, **{name: value for name, value in arguments.items() if name in taken_by})
    return bool(config.eagle_use_aux_hidden_state), config.eagle_aux_hidden_state_layer_ids


def _ids_from_runner(path: Path, hf_config: SimpleNamespace) -> tuple[bool, Any]:
    """Before: a `try` within the model runner, cut out and run; a release that reads no ids has none."""
    code = _reading_block(path)
    if code is None:
        return True, None
    owner = Owner(eagle_use_aux_hidden_state=True)
    scope: dict[str, Any] = {"self": owner, "draft_model_config": SimpleNamespace(hf_config=hf_config)}
    exec(code, scope)
    ids = scope.get("eagle_aux_hidden_state_layer_ids", owner.eagle_aux_hidden_state_layer_ids)
    return bool(owner.eagle_use_aux_hidden_state), ids


@functools.cache
def _reading_block(path: Path) -> CodeType | None:
    """The smallest `try` that names the ids, or None where the file has none."""
    wanted = '"eagle_aux_hidden_state_layer_ids"'
    blocks = [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Try) and wanted in ast.unparse(node).replace("'", '"')
    ]
    if not blocks:
        return None
    block = min(blocks, key=lambda node: len(ast.unparse(node)))
    return compile(ast.fix_missing_locations(ast.Module([block], [])), str(path), "exec")


def _is_entry(version: str, architecture: str) -> bool:
    """Whether any file of that release defines the architecture's class."""
    target = TARGETS[architecture]
    names = {target.setter[0], target.decoder[0], "kimi_k25", "glm4_moe", "bailing_moe"}
    for name in names:
        path = models(version) / f"{name}.py"
        try:
            if defines(path, architecture):
                return True
        except MissingCodeError:
            continue
    return False
