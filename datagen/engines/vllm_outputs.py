"""What is read off vLLM's outputs: its own choice at every position, and where an answer ends."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Answer
from datagen.engines.decoding import StopTexts

LIKELIEST = 4
"""Tokens asked of each position, so that those which are equally likely are seen."""


def own_choice(output: Any) -> NDArray[np.int32]:
    """Return vLLM's own likeliest next token of every position [T].

    `prompt_logprobs[t]` is what position t - 1 said; of the last position it is the token that was taken.
    """
    said = [_likeliest(ranked) for ranked in output.prompt_logprobs[1:]]
    return np.asarray([*said, output.outputs[0].token_ids[0]], np.int32)


def _likeliest(ranked: Any) -> int:
    """Return the first of the likeliest tokens, as an argmax does; vLLM ranks equals in any order."""
    best = max(said.logprob for said in ranked.values())
    return min(int(token) for token, said in ranked.items() if said.logprob == best)


def answer_of(ids: list[int], room: int, endings: frozenset[int], stops: StopTexts) -> Answer:
    """Return the answer that `ids` begin with: a step that says two tokens may go one too far."""
    for end in range(1, min(room, len(ids)) + 1):
        if ids[end - 1] in endings or stops.ends(ids[:end]):
            return Answer(tuple(ids[:end]), "stop")
    return Answer(tuple(ids[:room]), "length")


def text_of(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Return what says the text of tokens as the engine hf does."""

    def decoded(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text

    return decoded
