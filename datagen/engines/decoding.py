"""Answers of a transformers model: its own `generate`, told which token to take and when to stop.

transformers keeps the cache, pads to the left and counts the positions. The choice is made here, since a
sample's must not depend on its neighbours: by one uniform number a token, drawn beforehand from a generator
of the sample's own, on the cumulative probabilities in the order of the vocabulary.

Shapes: B prompts, S padded length, V vocabulary, N tokens of an answer at most.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from datagen.engines.base import Answer
from datagen.engines.sampling import Sampling

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

LIKELIEST = 1024
"""Tokens that are sorted first for top-p; where they have too little of the probability, all are."""
EXTRA_TOKENS = 4
"""A stop text of n bytes is looked for in the last n tokens and these: decoding may drop a space."""


def decode(
    model: Any,
    prompts: Sequence[NDArray[np.int32]],
    sampling: Sampling,
    seeds: Sequence[int],
    text_of: Decode | None,
    device: torch.device,
) -> list[Answer]:
    """Return the answers of one batch, each prompt with room for one; `text_of` is needed for stop texts."""
    width = max(map(len, prompts))
    rooms = [sampling.room(len(prompt)) for prompt in prompts]
    ids, mask = _left_padded(prompts, width)
    stops = StopTexts(sampling.stop, text_of, width)
    processors = LogitsProcessorList()
    if sampling.temperature > 0:
        processors.append(Chooser(sampling, seeds, width, device))
    config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max(rooms),
        eos_token_id=list(sampling.stop_token_ids) or None,
        pad_token_id=sampling.stop_token_ids[0] if sampling.stop_token_ids else 0,
    )
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=config,
            logits_processor=processors,
            stopping_criteria=StoppingCriteriaList([stops] if sampling.stop else []),
        )
    rows = out[:, width:].tolist()
    endings = frozenset(sampling.stop_token_ids)
    return [_cut(row, room, endings, stops) for row, room in zip(rows, rooms, strict=True)]


def _left_padded(prompts: Sequence[NDArray[np.int32]], width: int) -> tuple[Tensor, Tensor]:
    """Return ids and mask [B, S]; an answer follows its prompt without a gap."""
    ids = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt.astype(np.int64))
        mask[row, width - len(prompt) :] = 1
    return ids, mask


def _cut(ids: list[int], room: int, endings: frozenset[int], stops: "StopTexts") -> Answer:
    """Return the answer that `ids` begin with: other rows of the batch may have gone on for longer."""
    for end in range(1, min(room, len(ids)) + 1):
        if ids[end - 1] in endings or stops.ends(ids[:end]):
            return Answer(tuple(ids[:end]), "stop")
    return Answer(tuple(ids[:room]), "length")


class StopTexts(StoppingCriteria):  # type: ignore[misc]
    """Ends a row when its answer has one of the texts; what the prompt says is not looked at."""

    def __init__(self, texts: Sequence[str], text_of: Decode | None, width: int) -> None:
        if texts and text_of is None:
            raise ValueError("expected a tokenizer to look for stop texts, got none")
        self._texts = tuple(texts)
        self._text_of = text_of
        self._width = width
        self._window = max((len(text.encode()) for text in texts), default=0) + EXTRA_TOKENS

    def __call__(self, input_ids: Tensor, _scores: Any, **_: Any) -> Tensor:
        rows = input_ids[:, self._width :].tolist()
        return torch.tensor([self.ends(row) for row in rows], device=input_ids.device, dtype=torch.bool)

    def ends(self, ids: Sequence[int]) -> bool:
        """Say whether the end of an answer completes one of the texts."""
        if not self._texts or self._text_of is None:
            return False
        tail = self._text_of(ids[-self._window :])
        return any(text in tail for text in self._texts)


class Chooser(LogitsProcessor):  # type: ignore[misc]
    """Chooses each row's next token by the row's own numbers, and leaves no other to choose."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int], width: int, device: torch.device) -> None:
        self._temperature = sampling.temperature
        self._top_p = sampling.top_p
        self._width = width
        # Drawn on the CPU: the same numbers wherever the model runs.
        rows = [
            torch.rand(
                sampling.max_tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
            for seed in seeds
        ]
        self._uniform = torch.stack(rows).to(device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores [B, V] with 0 for the chosen token and -inf for all others."""
        uniform = self._uniform[:, input_ids.shape[1] - self._width]
        chosen = choose(scores, uniform, self._temperature, self._top_p)
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)


def choose(scores: Tensor, uniform: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return the tokens [B] that uniform numbers [B] in [0, 1) take of logits [B, V].

    With top-p no token is left out that is as likely as one that stays.
    """
    probabilities = torch.softmax(scores.float() / temperature, dim=-1)
    if top_p < 1.0:
        probabilities = probabilities.where(probabilities >= _least_likely(probabilities, top_p), 0.0)
    heights = probabilities.double().cumsum(-1)
    level = uniform[:, None].to(heights.device) * heights[:, -1:]
    return torch.searchsorted(heights, level, right=True).squeeze(1).clamp_(max=scores.shape[1] - 1)


def _least_likely(probabilities: Tensor, top_p: float) -> Tensor:
    """Return the smallest probability [B, 1] among the likeliest that have `top_p` together."""
    likeliest = torch.topk(probabilities, min(LIKELIEST, probabilities.shape[1])).values
    if bool((likeliest.double().sum(-1) < top_p).any()):
        likeliest = probabilities.sort(-1, descending=True).values
    before = likeliest.double().cumsum(-1) - likeliest
    # A token stays while those likelier than it have less than top_p; the first always does.
    last = (before < top_p).sum(-1, keepdim=True).clamp_(min=1) - 1
    return likeliest.gather(-1, last)
