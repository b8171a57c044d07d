"""Arguments of an engine's own library that are not a person's to hand on, and what to do in their place.

Three kinds: settings of ours, what a capture rests on, and what would change the states while their label
stays (a dataset is labelled with the digest of the model's files, its dtype and the engine's version).
All others go into a run's provenance.
"""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")

_FILES = "change the model's files, and name those as engine.model: their digest labels the states"
_REVISION = "engine.revision"
_RESTS = "the capture rests on it"
_REPLICAS = "workers.count: each worker is a replica"
_ROUNDING = "states are computed in engine.dtype alone"
_SECRET = "the variable HF_TOKEN: arguments go into the records of a run"
_ENGINE_MODEL = "engine.model"

VLLM_OWNED: Mapping[str, str] = {
    # Settings of ours.
    "model": _ENGINE_MODEL,
    "model_weights": _ENGINE_MODEL,
    "tokenizer": _ENGINE_MODEL,
    "hf_config_path": _ENGINE_MODEL,
    "revision": _REVISION,
    "code_revision": _REVISION,
    "tokenizer_revision": _REVISION,
    "dtype": "engine.dtype",
    "trust_remote_code": "engine.trust_remote_code",
    "max_model_len": "engine.vllm.max_model_len",
    "max_num_batched_tokens": "engine.vllm.max_num_batched_tokens",
    "max_num_seqs": "engine.vllm.max_num_seqs",
    "gpu_memory_utilization": "engine.vllm.gpu_memory_utilization",
    "kv_cache_memory_bytes": "engine.vllm.kv_cache_gib",
    "tensor_parallel_size": "engine.vllm.tensor_parallel",
    "distributed_executor_backend": "engine.vllm.executor",
    "data_parallel_size": _REPLICAS,
    "data_parallel_size_local": _REPLICAS,
    "data_parallel_backend": _REPLICAS,
    "data_parallel_rank": _REPLICAS,
    # What the capture rests on.
    "async_scheduling": _RESTS,
    "enable_prefix_caching": _RESTS,
    "enforce_eager": _RESTS,
    "compilation_config": _RESTS,
    "generation_config": _RESTS,
    "override_generation_config": _RESTS,
    "kv_transfer_config": _RESTS,
    "speculative_config": _RESTS,
    "worker_cls": _RESTS,
    "worker_extension_cls": _RESTS,
    "scheduler_cls": _RESTS,
    "pipeline_parallel_size": _RESTS,
    "decode_context_parallel_size": _RESTS,
    "prefill_context_parallel_size": _RESTS,
    "kv_sharing_fast_prefill": _RESTS,
    "skip_tokenizer_init": _RESTS,
    "max_logprobs": _RESTS,
    "logprobs_mode": _RESTS,
    "logits_processors": _RESTS,
    "runner": _RESTS,
    "convert": _RESTS,
    "model_impl": _RESTS,
    "pooler_config": _RESTS,
    "spec_method": _RESTS,
    "spec_model": _RESTS,
    "spec_tokens": _RESTS,
    "kv_offloading_size": _RESTS,
    "mm_encoder_only": _RESTS,
    "watermark_config": _RESTS,
    "swa_bounded_replay": _RESTS,
    # What would change the states.
    "quantization": _FILES,
    "quantization_config": _FILES,
    "hf_overrides": _FILES,
    "load_format": _FILES,
    "config_format": _FILES,
    "model_loader_extra_config": _FILES,
    "ignore_patterns": _FILES,
    "additional_config": _FILES,
    "model_class_overrides": _FILES,
    "disable_sliding_window": _FILES,
    "enable_lora": _FILES,
    "default_mm_loras": _FILES,
    "enable_prompt_embeds": _FILES,
    "kv_cache_dtype": _ROUNDING,
    "kv_cache_dtype_skip_layers": _ROUNDING,
    "mamba_cache_dtype": _ROUNDING,
    "mamba_ssm_cache_dtype": _ROUNDING,
    "enable_mamba_cache_stochastic_rounding": _ROUNDING,
    # What no record may hold.
    "hf_token": _SECRET,
}
"""Of vLLM, with what to do in their place."""
SGLANG_OWNED: Mapping[str, str] = {
    # Settings of ours.
    "model_path": _ENGINE_MODEL,
    "tokenizer_path": _ENGINE_MODEL,
    "revision": _REVISION,
    "dtype": "engine.dtype",
    "trust_remote_code": "engine.trust_remote_code",
    "context_length": "engine.sglang.context_length",
    "mem_fraction_static": "engine.sglang.mem_fraction_static",
    "tp_size": "engine.sglang.tensor_parallel",
    "dp_size": _REPLICAS,
    # What the capture rests on.
    "disable_radix_cache": _RESTS,
    "enable_return_aux_hidden_states": _RESTS,
    "enable_return_hidden_states": _RESTS,
    "return_aux_hidden_state_layer_ids": _RESTS,
    "return_hidden_states_mode": _RESTS,
    "aux_hidden_state_capture": _RESTS,
    "skip_tokenizer_init": _RESTS,
    "speculative_algorithm": _RESTS,
    "speculative_draft_model_path": _RESTS,
    "pp_size": _RESTS,
    "dcp_size": _RESTS,
    "attn_cp_size": _RESTS,
    "enable_prefill_cp": _RESTS,
    "allow_auto_truncate": _RESTS,
    "disaggregation_mode": _RESTS,
    "is_embedding": _RESTS,
    "model_impl": _RESTS,
    "forward_hooks": _RESTS,
    # What would change the states.
    "quantization": _FILES,
    "quantization_param_path": _FILES,
    "quantize_and_serve": _FILES,
    "modelopt_quant": _FILES,
    "json_model_override_args": _FILES,
    "load_format": _FILES,
    "model_config_parser": _FILES,
    "model_loader_extra_config": _FILES,
    "custom_weight_loader": _FILES,
    "decrypted_config_file": _FILES,
    "enable_lora": _FILES,
    "lora_paths": _FILES,
    "init_expert_location": _FILES,
    "rl_quant_profile": _FILES,
    "kv_cache_dtype": _ROUNDING,
    "prefill_kv_cache_dequant_dtype": _ROUNDING,
    "mamba_ssm_dtype": _ROUNDING,
    "enable_int8_mamba_checkpoint": _ROUNDING,
    "enable_w4a4_mxfp4_megamoe": _ROUNDING,
    "enable_quant_communications": _ROUNDING,
    "enable_tf32_matmul": _ROUNDING,
    "enable_mamba_cache_stochastic_rounding": _ROUNDING,
}
"""Of SGLang, with what to do in their place."""


def without_owned(arguments: dict[str, V], owned: Mapping[str, str]) -> dict[str, V]:
    """Return arguments that hold none of `owned`; raises `ValueError` with what to do for each that does."""
    found = [f"{name} ({owned[name]})" for name in sorted(set(arguments) & set(owned))]
    if found:
        raise ValueError(f"expected none that the engine sets itself, got {', '.join(found)}")
    return arguments
