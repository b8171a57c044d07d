"""The beginning of one sample of a part, captured again alone, against what the part holds of it.

States of another request, of the batch before, or of a buffer that was used again have the right norms, and
often the right beginning; alone, an engine has nothing to mix up.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from datagen.checks.calibration import Calibration
from datagen.checks.likeness import likeness
from datagen.checks.prefix import CEILING, NOISE
from datagen.checks.prompt import is_whole
from datagen.checks.rows import row_norms, token_errors, wide
from datagen.checks.sample import sample_problems
from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from schemas.problem import Problem
from schemas.schema import Schema

MIN_TOKENS = 16
"""Shorter samples are mostly what all samples begin with: they tell little."""
MOST_TOKENS = 32
"""Of a longer sample, so many are captured again: the cost has a bound."""
CANDIDATES = 4
"""So many captures are kept until the part is whole: the first that was not refused is compared."""
MAX_OUTLIERS = 0.02
"""The share of tokens that may be far off: a router's choice between two experts is a matter of rounding."""


def candidates(batched: Sequence[Sequence[Prompt]]) -> tuple[Prompt, ...]:
    """Return the prompts of a part's batches that are captured again, those that tell most first.

    States of a sample can be another's without a trace where both are as long and ran side by side, or where
    a batch ran before; of those the cheapest that tell enough.
    """
    ranked = []
    for number, batch in enumerate(batched):
        lengths = Counter(len(prompt.input_ids) for prompt in batch)
        for prompt in batch:
            n_tokens = len(prompt.input_ids)
            untold = (lengths[n_tokens] < 2) + (number == 0)
            ranked.append((untold, n_tokens < MIN_TOKENS, n_tokens, prompt.sample_id, prompt))
    return tuple(prompt for *_, prompt in sorted(ranked, key=lambda rank: rank[:-1])[:CANDIDATES])


def beginning(prompt: Prompt, calibration: Calibration, most: int = MOST_TOKENS) -> Prompt:
    """Return what is captured again of a sample: its first tokens, whose states do not know what follows."""
    if len(prompt.input_ids) <= most or calibration.parts(len(prompt.input_ids)):
        return prompt
    return replace(prompt, input_ids=prompt.input_ids[:most], loss_mask=prompt.loss_mask[:most])


def copied(capture: Capture, n_tokens: int | None = None) -> Capture:
    """Return a capture, or its first tokens, in memory of its own: a capture holds its batch's."""
    return Capture(
        token_ids=capture.token_ids[:n_tokens].copy(),
        tensors={name: rows[:n_tokens].copy() for name, rows in capture.tensors.items()},
        norms={name: np.array(norms[:n_tokens]) for name, norms in capture.norms.items()},
        argmax=None if capture.argmax is None else capture.argmax[:n_tokens].copy(),
    )


def first_tokens(capture: Capture, n_tokens: int) -> Capture:
    """Return the first tokens of a capture, over the same memory."""
    return Capture(
        token_ids=capture.token_ids[:n_tokens],
        tensors={name: rows[:n_tokens] for name, rows in capture.tensors.items()},
        norms={name: norms[:n_tokens] for name, norms in capture.norms.items()},
    )


def recapture_problems(schema: Schema, first: Capture, again: Capture) -> list[Problem]:
    """Return every tensor that a second pass over the same tokens does not give again."""
    problems = []
    n_tokens = len(again.token_ids)
    for name in schema.names:
        mine = first.tensors[name]
        errors = token_errors(mine, again.tensors[name])
        far = int((errors > CEILING).sum())
        median = float(np.median(errors))
        if median <= NOISE and far <= max(1, MAX_OUTLIERS * n_tokens):
            continue
        message = (
            f"expected the states that a second pass of the same {n_tokens} tokens gives, got a median error "
            f"of {median:.1%} and {far} tokens far off: {likeness(mine, again.tensors, name)}"
        )
        problems.append(Problem(where=name, kind="recapture", message=message))
    return problems


def bears_witness(schema: Schema, calibration: Calibration, prompt: Prompt, again: Capture) -> bool:
    """Say whether a second pass can be held against the first: what is refused at sight proves nothing."""
    if not is_whole(schema, again) or sample_problems(schema, calibration, prompt, again) is not None:
        return False
    return all(bool(np.isfinite(row_norms(wide(rows))).all()) for rows in again.tensors.values())
