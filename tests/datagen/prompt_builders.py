"""Prompts that the tests of datagen share."""

from collections.abc import Sequence

import numpy as np

from datagen.prompts.prompt import Prompt
from schemas.sample import prompt_id, sample_id

BEGINNING = (1, 9, 4, 7, 2, 8)


def prompt_of(tokens: Sequence[int], trained_from: int = 0, source: str = "tests.jsonl:1") -> Prompt:
    """Return the prompt of these token ids, trained from `trained_from` on."""
    mask = np.zeros(len(tokens), dtype=np.uint8)
    mask[trained_from:] = 1
    return Prompt(
        source=source,
        conversation_id=f"conversation {source}",
        input_ids=np.asarray(tokens, dtype=np.int32),
        loss_mask=mask,
        prompt_id=prompt_id(tokens, {"mode": "capture"}),
        sample_id=sample_id(tokens),
        text='[{"content":"hello","role":"user"}]',
    )


def random_prompts(lengths: Sequence[int], vocab_size: int = 1000, seed: int = 0) -> list[Prompt]:
    """Return a prompt of each length, of random tokens."""
    rng = np.random.default_rng(seed)
    return [
        prompt_of(rng.integers(0, vocab_size, length).tolist(), length // 2, f"tests.jsonl:{number}")
        for number, length in enumerate(lengths, start=1)
    ]


def chat_prompts(lengths: Sequence[int], vocab_size: int = 1000, seed: int = 0) -> list[Prompt]:
    """Return a prompt of each length, of random tokens behind those that a chat template begins with."""
    rng = np.random.default_rng(seed)
    return [
        prompt_of([*BEGINNING, *rng.integers(0, vocab_size, length - len(BEGINNING)).tolist()], length // 2)
        for length in lengths
    ]
