"""What an engine asks of the samples of a batch, before anything runs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datagen.engines.errors import BatchError
from datagen.engines.sampling import Sampling
from schemas.problem import Problem


def checked(
    batch: Sequence[Sequence[int]], vocab_size: int, longest: int | None = None
) -> list[NDArray[np.int32]]:
    """Return the samples as int32 arrays.

    Raises `BatchError` with every sample that is empty, too long or has an id outside the vocabulary.
    """
    if not len(batch):
        raise BatchError("the batch is empty", [_problem("batch", "expected at least one sample, got none")])
    problems = []
    samples = []
    for index, ids in enumerate(batch):
        where = f"sample {index}"
        wide = np.asarray(ids, dtype=np.int64) if len(ids) else np.empty(0, dtype=np.int64)
        if wide.ndim != 1 or not len(wide):
            problems.append(_problem(where, f"expected token ids [T] from T = 1, got shape {wide.shape}"))
            continue
        if longest is not None and len(wide) > longest:
            message = f"expected at most {longest} tokens, which the model has positions for, got {len(wide)}"
            problems.append(_problem(where, message))
        if wide.min() < 0 or wide.max() >= vocab_size:
            bad = wide[(wide < 0) | (wide >= vocab_size)][0]
            problems.append(_problem(where, f"expected ids from 0 to {vocab_size - 1}, got {bad}"))
        samples.append(wide.astype(np.int32))
    if problems:
        raise BatchError("the batch is refused", problems)
    return samples


def checked_prompts(
    prompts: Sequence[Sequence[int]], vocab_size: int, sampling: Sampling
) -> list[NDArray[np.int32]]:
    """Return the prompts as int32 arrays.

    Raises `BatchError` as `checked` does, and with every prompt that leaves no room for an answer.
    """
    samples = checked(prompts, vocab_size)
    problems = [
        _problem(
            f"sample {index}",
            f"expected fewer than the {sampling.sample_tokens} tokens of a sample, "
            f"got a prompt of {len(ids)}",
        )
        for index, ids in enumerate(samples)
        if sampling.room(len(ids)) < 1
    ]
    if problems:
        raise BatchError("the batch is refused", problems)
    return samples


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="batch", message=message)
