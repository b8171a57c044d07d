"""A target small enough for a test, as a folder that its ends are read from, and a dataset that fits it."""

from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

from schemas.target import Target
from tests.builders import tiny_target

VOCAB, WIDTH, N_LAYERS = 211, 16, 8


def save_model(folder: Path, *, dtype: torch.dtype = torch.bfloat16, **more: object) -> Path:
    """Save a Llama of random weights, its lm_head not its embedding, and return its folder."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
        tie_word_embeddings=False,
        **more,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    # Of few bits, so that a product's sum is the same in every order of its terms.
    model.lm_head.weight.data = torch.round(model.lm_head.weight.data * 4) / 4
    model.to(dtype).save_pretrained(folder)
    return folder


def model_target() -> Target:
    """Return a target of the model's sizes whose weights nobody has a digest of."""
    return tiny_target(n_layers=N_LAYERS, hidden_size=WIDTH, vocab_size=VOCAB)
