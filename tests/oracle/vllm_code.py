"""vLLM's own code: which boundaries a target captures for an EAGLE-3 draft's config, by runner."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch

from tests.oracle.borrow import Inert, MissingCodeError, borrow, defines, find
from tests.oracle.stream import Layer, Owner, Ranks, embedded, layer_returns, norm, taken
from tests.oracle.wheels import is_cached as cached
from tests.oracle.wheels import source

Runner = Literal["V1", "V2"]


@dataclass(frozen=True)
class Target:
    """An architecture's file under `model_executor/models`, its class, and the class that captures."""

    file: str
    model: str
    decoder: tuple[str, str]


TARGETS: dict[str, Target] = {
    "LlamaForCausalLM": Target("llama", "LlamaForCausalLM", ("llama", "LlamaModel")),
    "Qwen2ForCausalLM": Target("qwen2", "Qwen2ForCausalLM", ("qwen2", "Qwen2Model")),
    "Qwen3ForCausalLM": Target("qwen3", "Qwen3ForCausalLM", ("qwen2", "Qwen2Model")),
    "Qwen3MoeForCausalLM": Target("qwen3_moe", "Qwen3MoeForCausalLM", ("qwen3_moe", "Qwen3MoeModel")),
    "GptOssForCausalLM": Target("gpt_oss", "GptOssForCausalLM", ("gpt_oss", "GptOssModel")),
    "DeepseekV2ForCausalLM": Target(
        "deepseek_v2", "DeepseekV2ForCausalLM", ("deepseek_v2", "DeepseekV2Model")
    ),
    "DeepseekV3ForCausalLM": Target(
        "deepseek_v2", "DeepseekV2ForCausalLM", ("deepseek_v2", "DeepseekV2Model")
    ),
    "KimiK25ForConditionalGeneration": Target(
        "deepseek_v2", "DeepseekV2ForCausalLM", ("deepseek_v2", "DeepseekV2Model")
    ),
}


def models(version: str) -> Path:
    return source("vllm", version) / "model_executor" / "models"


def is_cached(version: str) -> bool:
    return cached("vllm", version)


def supported(version: str) -> set[str]:
    """The architectures of TARGETS whose `forward` captures at that version."""
    found = set()
    for architecture, target in TARGETS.items():
        path = models(version) / f"{target.decoder[0]}.py"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        captures = "aux_hidden_state_layers" in text or "_maybe_add_hidden_state" in text
        kimi = architecture.startswith("Kimi")
        if captures and (not kimi or defines(models(version) / "kimi_k25.py", architecture)):
            found.add(architecture)
    return found


def ids_from(version: str, runner: Runner, draft_config: dict[str, Any]) -> tuple[int, ...] | None:
    """The ids that the runner takes from the draft's config, or None where it will use the default."""
    config = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=SimpleNamespace(**draft_config)))
    worker = source("vllm", version) / "v1" / "worker"
    if runner == "V2":
        path = worker / "gpu" / "spec_decode" / "eagle" / "eagle3_utils.py"
        return borrow(path, "get_eagle3_aux_layers_from_config")(config)  # type: ignore[no-any-return]
    path = worker / "gpu_model_runner.py"
    name = "GPUModelRunner._get_eagle3_aux_layers_from_config"
    if not defines(path, name):  # before 0.11.1 no ids are read
        return None
    return borrow(path, name)(SimpleNamespace(speculative_config=config))  # type: ignore[no-any-return]


def uses_aux(version: str, runner: Runner, draft_config: dict[str, Any]) -> bool:
    """Whether the runner captures at all for this draft's config."""
    hf_config = SimpleNamespace(**draft_config)
    folder = source("vllm", version) / "v1"
    if runner == "V2":
        path = folder / "worker/gpu/spec_decode/eagle/eagle3_utils.py"
        spec = SimpleNamespace(method="eagle3", draft_model_config=SimpleNamespace(hf_config=hf_config))
        name = "requires_aux_hidden_states"
        return bool(borrow(path, name)(spec)) if defines(path, name) else True
    for file in ("llm_base_proposer.py", "eagle.py"):
        path = folder / "spec_decode" / file
        for owner in ("SpecDecodeBaseProposer", "EagleProposer"):
            name = f"{owner}._get_eagle3_use_aux_hidden_state_from_config"
            if defines(path, name):
                proposer = SimpleNamespace(
                    method="eagle3", draft_model_config=SimpleNamespace(hf_config=hf_config)
                )
                return bool(borrow(path, name)(proposer))
    return True


def captured_boundaries(
    version: str, runner: Runner, architecture: str, draft_config: dict[str, Any], n_layers: int
) -> list[int]:
    """The boundaries that the target's own `forward` hands to the draft, in the order of the `fc` input.

    Raises what their code raises, and MissingCodeError where the release has no such runner or does not
    serve the architecture.
    """
    if architecture not in supported(version):
        raise MissingCodeError(f"vllm {version} does not capture from {architecture}")
    if not uses_aux(version, runner, draft_config):
        return []
    decoder = _decoder(version, architecture, n_layers)
    layers = ids_from(version, runner, draft_config) or _default(version, architecture, decoder)
    _set(version, architecture, decoder, layers)
    file, name = TARGETS[architecture].decoder
    forward = borrow(models(version) / f"{file}.py", f"{name}.forward", {"get_pp_group": Ranks})
    ids = torch.zeros(1, dtype=torch.long)
    return taken(forward(decoder, ids, ids, None, None))


def _decoder(version: str, architecture: str, n_layers: int) -> Owner:
    file, name = TARGETS[architecture].decoder
    returns = layer_returns(find(models(version) / f"{file}.py", f"{name}.forward"))
    decoder = Owner(
        layers=[Layer(returns) for _ in range(n_layers)],
        start_layer=0,
        end_layer=n_layers,
        aux_hidden_state_layers=(),
        llama_4_scaling_config=None,
        norm=norm,
        embed_input_ids=lambda *_: embedded(),
        get_input_embeddings=lambda *_: embedded(),
        embedding=lambda *_: embedded(),
        embed_tokens=lambda *_: embedded(),
        collect_remote_aux_hidden_states=lambda _: [],
        config=SimpleNamespace(num_hidden_layers=n_layers),
    )
    interfaces = models(version) / "interfaces.py"
    for method in ("_set_aux_hidden_state_layers", "_maybe_add_hidden_state", "_cache_aux_pp_layout"):
        if defines(interfaces, f"EagleModelMixin.{method}"):
            function = borrow(
                interfaces, f"EagleModelMixin.{method}", {"model_parallel_is_initialized": Inert()}
            )
            decoder.__dict__[method] = _bound(function, decoder)
    return decoder


def _bound(function: Any, owner: Owner) -> Any:
    return lambda *args: function(owner, *args)


def _default(version: str, architecture: str, decoder: Owner) -> tuple[int, ...]:
    target = TARGETS[architecture]
    path = models(version) / f"{target.file}.py"
    own = f"{target.model}.get_eagle3_aux_hidden_state_layers"
    interfaces = models(version) / "interfaces.py"
    shared = "SupportsEagle3.get_eagle3_default_aux_hidden_state_layers"
    owner = SimpleNamespace(model=decoder)
    if defines(interfaces, shared):
        return borrow(interfaces, shared)(owner)  # type: ignore[no-any-return]
    return borrow(path, own)(owner)  # type: ignore[no-any-return]


def _set(version: str, architecture: str, decoder: Owner, layers: tuple[int, ...]) -> None:
    target = TARGETS[architecture]
    path = models(version) / f"{target.file}.py"
    own = f"{target.model}.set_aux_hidden_state_layers"
    owner = SimpleNamespace(model=decoder)
    if defines(path, own):
        borrow(path, own)(owner, layers)
        return
    interfaces = models(version) / "interfaces.py"
    given = {"EagleModelMixin": Owner}
    borrow(interfaces, "SupportsEagle3.set_aux_hidden_state_layers", given)(owner, layers)
