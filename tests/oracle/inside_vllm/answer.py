"""Answers one question with a real vLLM: `python answer.py QUESTION.json`, beside which the answer is put.

A question holds `model` (a folder), `dtype`, `prompts` (lists of token ids) and `speculative` (vLLM's own
setting). With the method `extract_hidden_states` the answer is what the connector wrote; with `eagle3` it is
what the draft's own `combine_hidden_states` was handed. `answer.safetensors` holds a tensor `{i}` [token,
width] for each prompt, and `answer.json` says which runner served, and with which norms the draft ran.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    load_hidden_states,
)
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)


def main() -> None:
    question_file = Path(sys.argv[1])
    question = json.loads(question_file.read_text(encoding="utf-8"))
    folder = question_file.parent
    extracts = question["speculative"]["method"] == "extract_hidden_states"
    llm = LLM(**_settings(question, folder, extracts))
    said: dict[str, Any] = {"runner": "V2" if llm.llm_engine.vllm_config.use_v2_model_runner else "V1"}
    if extracts:
        tensors = _extracted(llm, question["prompts"])
    else:
        tensors, said["norms"] = _handed(llm, question["prompts"])
    save_file(
        {str(i): tensor.contiguous() for i, tensor in enumerate(tensors)}, folder / "answer.safetensors"
    )
    (folder / "answer.json").write_text(json.dumps(said), encoding="utf-8")


def _settings(question: dict[str, Any], folder: Path, extracts: bool) -> dict[str, Any]:
    settings = {
        "model": question["model"],
        "dtype": question["dtype"],
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "max_model_len": 512,
        "max_num_seqs": 4,
        "speculative_config": question["speculative"],
    }
    if extracts:
        settings["kv_transfer_config"] = {
            "kv_connector": "CpuHiddenStatesConnector",
            "kv_connector_module_path": "cpu_connector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": str(folder)},
        }
    return settings


def _extracted(llm: Any, prompts: list[list[int]]) -> list[torch.Tensor]:
    """The stored slots of all prompts, made in one batch, one beside the other [token, slot * hidden]."""
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], ONE_TOKEN, use_tqdm=False)
    states = []
    for output, ids in zip(outputs, prompts, strict=True):
        stored = load_hidden_states(output.kv_transfer_params["hidden_states_path"])
        if stored["token_ids"].tolist() != ids:
            raise ValueError(f"expected states of {ids}, got those of {stored['token_ids'].tolist()}")
        states.append(stored["hidden_states"].flatten(1))
    return states


def _handed(llm: Any, prompts: list[list[int]]) -> tuple[list[torch.Tensor], dict[str, bool]]:
    """What the draft's input layer gets for each prompt [token, width], one after the other; its norms."""
    theirs = Eagle3LlamaForCausalLM.combine_hidden_states
    calls: list[torch.Tensor] = []
    norms: dict[str, bool] = {}

    def noting(draft: Any, hidden_states: torch.Tensor) -> Any:
        calls.append(hidden_states.detach().clone())
        norms.update(_norms(draft.model))
        return theirs(draft, hidden_states)

    Eagle3LlamaForCausalLM.combine_hidden_states = noting
    states = []
    for ids in prompts:
        calls.clear()
        llm.generate([{"prompt_token_ids": ids}], ONE_TOKEN, use_tqdm=False)
        states.append(calls[0][: len(ids)])
    return states, norms


def _norms(draft: Any) -> dict[str, bool]:
    return {
        "norm_before_residual": draft.layers[0]._residual_norm.__name__ == "_norm_before_residual",
        "norm_before_fc": draft.input_norm is not None,
        "fc_norm": draft.fc_norm is not None,
        "norm_output": bool(draft.norm_output),
    }


if __name__ == "__main__":
    main()
