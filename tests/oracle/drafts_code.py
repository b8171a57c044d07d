"""What the servers' draft models read of a draft's config, and which weights they load or pass over."""

import ast
from pathlib import Path
from types import SimpleNamespace

import torch

from tests.oracle.borrow import borrow, tree
from tests.oracle.stream import Owner
from tests.oracle.wheels import source

FLAGS = (
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "use_aux_norm",
    "norm_output",
    "num_aux_hidden_states",
    "target_hidden_size",
    "draft_vocab_size",
    "use_aux_hidden_state",
    "eagle_aux_hidden_state_layer_ids",
)


def draft_model(system: str, version: str, name: str = "llama_eagle3") -> Path:
    folder = "srt/models" if system == "sglang" else "model_executor/models"
    return source(system, version) / folder / f"{name}.py"


def flags_read(system: str, version: str, name: str = "llama_eagle3") -> set[str]:
    """Those of FLAGS that the draft model's code names, as an attribute or as a key."""
    nodes = list(ast.walk(tree(draft_model(system, version, name))))
    keys = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config")
    }
    return {flag for flag in FLAGS if flag in keys or flag in attributes}


def sglang_loads(version: str, parameters: list[str], weights: list[str]) -> set[str]:
    """The parameters of a Llama-like draft that SGLang's `load_weights` fills from weights of these names."""
    filled: set[str] = set()

    def parameter(name: str) -> SimpleNamespace:
        return SimpleNamespace(weight_loader=lambda *_: filled.add(name))

    draft = Owner(named_parameters=lambda: [(name, parameter(name)) for name in parameters])
    load = borrow(draft_model("sglang", version), "LlamaForCausalLMEagle3.load_weights")
    load(draft, [(name, torch.zeros(1)) for name in weights])
    return filled


def vllm_passes_over(version: str) -> set[str]:
    """The parts of names that vLLM's `load_weights` leaves out on purpose; any other unknown name raises."""
    found = set()
    for node in ast.walk(tree(draft_model("vllm", version))):
        text = ast.unparse(node)
        if isinstance(node, ast.Call) and text.startswith("skip_substrs.append("):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
        if isinstance(node, ast.Assign) and text.startswith("orig_to_new_substr["):
            found.add(text.split("'")[1])
    return {str(part) for part in found}
