"""EAGLE's own `ge_data` script, whole, on a CPU; started by `writers.py`.

Usage: SCRIPT and the script's own arguments, in a folder with the model and the conversations where the
script looks for them. Put in for what it does on a GPU: `.cuda()` stays where it is; of fastchat only the
templates are imported, since the rest of it asks for an older transformers; and a tokenizer that is not
Llama's is taken for a legacy one.
"""

import runpy
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

TEMPLATES = {"vicuna": "vicuna_v1.1", "llama-2-chat": "llama-2"}
"""fastchat's names for what `get_conversation_template` gives models of these names."""


def main() -> None:
    conversation: Any = import_module("fastchat.conversation")
    setattr(torch.Tensor, "cuda", lambda tensor: tensor)  # noqa: B010
    PreTrainedTokenizerBase.legacy = True
    adapter: Any = ModuleType("fastchat.model.model_adapter")
    adapter.get_conversation_template = lambda name: conversation.get_conv_template(TEMPLATES[name])
    sys.modules["fastchat.model"] = ModuleType("fastchat.model")
    sys.modules["fastchat.model.model_adapter"] = adapter
    script = sys.argv.pop(1)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
