"""A capture against its prompt, and against itself: ids, finite values, zeros, rows and norms that agree."""

import numpy as np

from datagen.checks.rows import row_norms, wide
from datagen.engines.base import Capture
from datagen.prompts.prompt import Prompt
from schemas.boundary import EMBED
from schemas.problem import Problem
from schemas.records import QuarantineReason
from schemas.schema import Schema, TensorFacts

NORM_TOLERANCE = 1e-2
"""Norms are reduced in float32 where the tensor lies: a copy that is another's, or too early, is far off."""


def capture_problem(prompt: Prompt, capture: Capture) -> tuple[QuarantineReason, Problem] | None:
    """Return why this capture cannot be the prompt's, or `None`."""
    asked = np.asarray(prompt.input_ids)
    got = np.asarray(capture.token_ids)
    if got.shape != asked.shape:
        message = f"expected the {asked.size} tokens that were asked for, got {got.size}"
        return "wrong_content", Problem(where="input_ids", kind="tokens", message=message)
    if not np.array_equal(got, asked):
        at = int(np.flatnonzero(got != asked)[0])
        message = f"expected token {int(asked[at])} at position {at}, got {int(got[at])}"
        return "wrong_content", Problem(where="input_ids", kind="tokens", message=message)
    for name, norms in capture.norms.items():
        bad = np.flatnonzero(~np.isfinite(norms))
        if bad.size:
            message = (
                f"expected finite values, got NaN or Inf in {bad.size} rows, first at token {int(bad[0])}"
            )
            return "non_finite", Problem(where=name, kind="finite", message=message)
        zeros = int(np.count_nonzero(norms == 0))
        # The embedding of a padding token is zeros in some models.
        if zeros and (zeros == norms.size or name != EMBED):
            message = f"expected states, got zeros in {zeros} of {norms.size} rows"
            return "wrong_content", Problem(where=name, kind="zeros", message=message)
    return None


def norm_problems(capture: Capture) -> list[Problem]:
    """Return the tensors whose rows have not the norms that were reduced where they lay: a copy of another's
    memory, or one that was taken too early. Three rows of each are compared."""
    problems = []
    for name, rows in capture.tensors.items():
        norms = capture.norms[name]
        at = sorted({0, len(rows) // 2, len(rows) - 1})
        got = row_norms(wide(rows[at]))
        wrong = np.flatnonzero(np.isfinite(got) & ~(np.abs(got - norms[at]) <= NORM_TOLERANCE * norms[at]))
        if wrong.size:
            first = int(wrong[0])
            message = (
                f"expected a row of the norm {float(norms[at[first]]):.4g} that the engine computed, "
                f"got {float(got[first]):.4g} at token {at[first]}"
            )
            problems.append(Problem(where=name, kind="norms", message=message))
    return problems


def is_whole(schema: Schema, capture: Capture) -> bool:
    """Say whether a capture has the tensors of a schema, and their norms; values are not looked at."""
    n_tokens = len(capture.token_ids)
    facts = {name: TensorFacts(str(rows.dtype), rows.shape) for name, rows in capture.tensors.items()}
    norms = all(name in capture.norms and capture.norms[name].shape == (n_tokens,) for name in facts)
    return norms and n_tokens > 0 and not list(schema.problems(n_tokens, facts))
