"""How a vLLM is started: the settings of a person, and above them what the extraction rests on."""

from typing import Any

from datagen.engines.model_files import locate
from datagen.engines.settings import EngineSettings
from datagen.engines.vllm_layers import Layers


def arguments_of(settings: EngineSettings, layers: Layers, longest: int | None) -> dict[str, Any]:
    """Return how vLLM is started; what its extraction rests on stands last, and is never a person's."""
    own = settings.vllm
    gib = own.kv_cache_gib
    chosen: dict[str, Any] = {
        "max_model_len": own.max_model_len if longest is None else longest + 1,
        "max_num_batched_tokens": own.max_num_batched_tokens,
        "max_num_seqs": own.max_num_seqs,
        "gpu_memory_utilization": own.gpu_memory_utilization,
        "kv_cache_memory_bytes": None if gib is None else int(gib * (1 << 30)),
    }
    draft = {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers.ids)}}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        **own.arguments,
        "model": str(locate(settings, with_weights=True).folder),
        "dtype": settings.dtype,
        "trust_remote_code": settings.trust_remote_code,
        "tensor_parallel_size": own.tensor_parallel,
        "distributed_executor_backend": own.executor if own.tensor_parallel > 1 else None,
        "enforce_eager": True,
        # Else drafts go from worker to worker past the core, which is told to take none.
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "generation_config": "vllm",
        "worker_extension_cls": "datagen.engines.vllm_reach.Reach",
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": draft,
        },
        "kv_transfer_config": {
            "kv_connector": "StatesConnector",
            "kv_connector_module_path": "datagen.engines.vllm_connector",
            "kv_role": "kv_producer",
        },
    }
