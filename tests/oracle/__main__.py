"""Print what the oracle cannot run on a CPU, by name and with the reason."""

import sys

NOT_RUN = (
    (
        "sglang",
        "decoder layers (attn_boundary.prepare, prepare_attn_and_capture_last_layer_outputs)",
        "kernels need an accelerator: that they capture a layer's input was read, not run",
    ),
    (
        "sglang",
        "two-batch overlap, pipeline and data-parallel branches of forward",
        "need a process group: run as one rank, as the capture ids do not depend on them",
    ),
    (
        "sglang",
        "multimodal wrappers (qwen3_vl, qwen2_5_vl, gemma3_mm, gemma4_mm, mllama4, glm5_next)",
        "their setters were read; they delegate to, or repeat, the language model's",
    ),
    (
        "sglang",
        "ServerArgs as a whole, attention backends and page size against top-k",
        "its checks ask for a CUDA device: only the rules of the three flags are run",
    ),
    (
        "sglang, vllm",
        "the draft models' own forward (norms, fc)",
        "layers need an accelerator: flags are read",
    ),
    (
        "vllm",
        "AutoWeightsLoader (unknown weights raise)",
        "needs built modules: the names left out on purpose are read",
    ),
    (
        "vllm",
        "which runner a server takes by default",
        "a property of the whole VllmConfig: read; set VLLM_USE_V2_MODEL_RUNNER to be sure",
    ),
    (
        "vllm",
        "transformers backend (OutputRecorder hooks)",
        "needs a built model: ids were read as `layer - 1`",
    ),
    ("vllm", "SpeculativeConfig (num_speculative_tokens)", "needs two model configs: read"),
    ("speculators", "Eagle3DraftModel.forward", "whether the target is normed is read from its syntax tree"),
    (
        "specforge",
        "SGLang capture server and patches, position ids",
        "need CUDA; `_prepare_position_ids` (from 0) was read",
    ),
    ("torchspec, modelopt, automodel, deepspec, eagle", "all", "not released as wheels that hold this code"),
)


def main() -> None:
    """Print the table."""
    sys.stdout.write("\nnot run on a CPU:\n")
    for system, what, reason in NOT_RUN:
        sys.stdout.write(f"  {system}: {what}\n    {reason}\n")


if __name__ == "__main__":
    main()
