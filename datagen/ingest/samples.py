"""A row as the store takes it: slots by their labels, not a bit of them changed, and their rows' norms."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.imports.format import ForeignRow
from datagen.ingest.facts import Facts, whole_mask
from datagen.ingest.norms import norms_of
from datagen.ingest.plan import IngestPlan
from datagen.printing import printable
from datagen.replay.identify_problems import listed
from datagen.store.sample_data import SampleData
from schemas.boundary import EMBED
from schemas.problem import Problem
from schemas.sample import prompt_id

CAPTURED: dict[str, object] = {"mode": "capture"}
"""How the samples were asked for, as far as their ids say: what a run in capture mode would ask for."""


def sample_data(plan: IngestPlan, facts: Facts, row: ForeignRow) -> SampleData:
    """Return a row as the store takes it: its slots by name, contiguous, not a bit of them changed."""
    tensors = {label: _contiguous(slot.rows) for label, slot in zip(plan.labels, row.slots, strict=True)}
    ids = row.token_ids.tolist()
    return SampleData(
        sample_id=facts.sample_id,
        prompt_id=prompt_id(ids, CAPTURED),
        conversation_id=plan.conversation_of(facts),
        source=printable(facts.listed.name),
        tokens={
            "input_ids": row.token_ids.astype(np.int32),
            "loss_mask": whole_mask(row.loss_mask, facts.n_tokens),
        },
        tensors=tensors,
        norms={label: norms_of(rows) for label, rows in tensors.items()},
    )


def _contiguous(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Copy rows together, by their bits: numpy copies a type of another library's one value at a time."""
    words = rows.view(np.dtype(f"u{rows.dtype.itemsize}"))
    return np.ascontiguousarray(words).view(rows.dtype)


def state_problems(sample: SampleData) -> Iterator[Problem]:
    """Yield the tensors with rows that are no states: NaN or Inf (`non_finite`), or zeros.

    The embedding of a padding token is zeros in some models.
    """
    for name, norms in sample.norms.items():
        not_finite, zeros = np.flatnonzero(~np.isfinite(norms)), np.flatnonzero(norms == 0)
        if len(not_finite):
            tokens = listed(not_finite).removeprefix("rows ").removeprefix("row ")
            message = f"expected finite values, got NaN or Inf at {len(not_finite)} tokens: {tokens}"
            yield Problem(where=name, kind="non_finite", message=message)
        if len(zeros) and (name != EMBED or len(zeros) == len(norms)):
            message = (
                f"expected states, got zeros at {len(zeros)} of {len(norms)} tokens, first at {zeros[0]}"
            )
            yield Problem(where=name, kind="zeros", message=message)
