"""Every sample's states against its own token ids: do they say what its tokens go on with?

A last state says which token comes next. Of a few rows of a sample, the logits of their own next token are
held against those of the other rows' next tokens: a small square, nothing of the size of the vocabulary. How
far the own stand out is measured on the audit set; states of another request, or a token early or late, say
what other tokens go on with. `embed` needs no such measure: its rows are those of the embedding table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.checks.rows import ROUNDING, token_errors
from datagen.engines.base import Capture, Ends
from datagen.prompts.prompt import Prompt
from schemas.boundary import EMBED, FINAL, FINAL_NORMED
from schemas.problem import Problem
from schemas.schema import Schema

MOST_ROWS = 24
LEAST_ROWS = 8
"""Of fewer rows chance has its say: such a sample is not bound."""
LEAST_TYPICAL = 2.0
"""Deviations that own tokens stand out by on an audit set at least: 3.6 on SmolLM2's, 0.2 by chance."""
SHARE = 0.5
"""Of what is typical, what binds a sample: 2 of 436 real conversations have less, no stranger half of it."""
SURE_SHARE = 0.8
"""Own tokens stand out by 0.6 of it at most in states a token early or late: above, nothing else is asked."""
EVIDENCE = 6.0
"""Standard errors by which others' tokens must stand out, before states are said to be theirs."""
EMBED_ROWS = 4

States = NDArray[np.generic]


@dataclass(frozen=True)
class Audited:
    """A sample of the audit set, as far as binding is measured on it: `embed` and a last state, by name."""

    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    tensors: Mapping[str, States]


class Look(NamedTuple):
    """What rows of a sample say of its own tokens: `own` is how far these stand out, in deviations.

    `few` rows say nothing; `untold` is what neither stands out nor says whose it is.
    """

    kind: Literal["own", "few", "untold", "late", "early"]
    own: float = 0.0


@dataclass(frozen=True)
class Binding:
    """How samples are bound to their ids: by `states` (`final` or `final_normed`), and by `embed`.

    Without `states`, or with `by_embed` false, `said` tells why.
    """

    ends: Ends | None
    states: str | None
    typical: float
    by_embed: bool
    said: str

    @property
    def limit(self) -> float:
        """Deviations from which on tokens stand out."""
        return SHARE * self.typical

    def embed_problem(self, schema: Schema, capture: Capture) -> Problem | None:
        """Return what is wrong with a few rows of `embed`."""
        if not self.by_embed or self.ends is None:
            return None
        ids = capture.token_ids
        at = np.unique(np.linspace(0, len(ids) - 1, EMBED_ROWS).astype(int))
        errors = token_errors(capture.tensors[EMBED][at], self.ends.embed(ids[at]))
        wrong = np.flatnonzero(~(errors <= embed_tolerance(schema)))
        if not wrong.size:
            return None
        first = int(at[wrong[0]])
        message = (
            f"expected the embedding of its own tokens, got other rows at {wrong.size} of {len(at)}, "
            f"first at token {first}"
        )
        return Problem(where=EMBED, kind="binding", message=message)

    def look(self, prompt: Prompt, capture: Capture) -> Look:
        """Return what the states of a capture say of its prompt's tokens."""
        ids = prompt.input_ids
        at = picked(ids, prompt.loss_mask, len(ids))
        if len(at) < LEAST_ROWS:
            return Look("few")
        rows = self.normed(capture, at)
        own = self._stand_out(rows, ids[at + 1])
        if own >= SURE_SHARE * self.typical:
            return Look("own", own)
        late, early = self._stand_out(rows, ids[at]), self._stand_out(rows, ids[at + 2])
        shifted = max(late, early)
        if shifted > own and self._is_evidence(shifted, len(at)):
            return Look("late" if late > early else "early", own)
        return Look("own" if own >= self.limit else "untold", own)

    def says(self, capture: Capture, other: Prompt) -> float | None:
        """Return how far another sample's tokens stand out in the states of a capture, where that is evidence
        that they are its states: where both begin alike, the states of both are the same."""
        at = picked(other.input_ids, other.loss_mask, len(capture.token_ids))
        at = at[at >= _alike(capture.token_ids, other.input_ids)]
        if len(at) < LEAST_ROWS:
            return None
        found = self._stand_out(self.normed(capture, at), other.input_ids[at + 1])
        return found if self._is_evidence(found, len(at)) else None

    def normed(self, capture: Capture, at: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the last states at some positions behind the final norm, in float32."""
        if self.ends is None or self.states is None:
            raise ValueError("expected states to bind by, got none")
        return normed_rows(self.ends, self.states, capture.tensors[self.states][at])

    def _stand_out(self, rows: NDArray[np.float32], next_ids: NDArray[np.int32]) -> float:
        if self.ends is None:
            raise ValueError("expected ends of the model, got none")
        return standing_out(rows, self.ends.head(next_ids))

    def _is_evidence(self, found: float, n_rows: int) -> bool:
        return found >= self.limit and found * n_rows**0.5 >= EVIDENCE


def calibrated(ends: Ends, schema: Schema, audited: Sequence[Audited]) -> Binding:
    """Measure on an audit set which checks tell anything of this target."""
    states = next((name for name in (FINAL, FINAL_NORMED) if name in schema.names), None)
    told = []
    typical = 0.0
    if states is None:
        told.append("by no last states (neither final nor final_normed is captured)")
    else:
        typical, said = _typical(ends, states, audited)
        states = states if typical else None
        told.append(said)
    by_embed = EMBED in schema.names
    if by_embed:
        by_embed, said = _table_holds(ends, schema, audited)
        told.append(said)
    return Binding(ends, states, typical, by_embed, "; ".join(told))


def unbound(why: str) -> Binding:
    """Return the binding that checks nothing, and says why."""
    return Binding(None, None, 0.0, False, why)


def picked(ids: NDArray[np.int32], mask: NDArray[np.uint8], end: int) -> NDArray[np.intp]:
    """Return at most `MOST_ROWS` positions below `end` whose next tokens are all others.

    Before trained tokens, where there are enough of them: what stands in front is often many samples' own.
    """
    inner = np.arange(1, min(end, len(ids)) - 2)
    trained = inner[mask[inner + 1] == 1]
    for some in (trained, inner):
        _, first = np.unique(ids[some + 1], return_index=True)
        at = some[np.sort(first)]
        if len(at) >= LEAST_ROWS:
            break
    if len(at) > MOST_ROWS:
        at = at[np.linspace(0, len(at) - 1, MOST_ROWS).astype(int)]
    return np.asarray(at, np.intp)


def normed_rows(ends: Ends, name: str, rows: States) -> NDArray[np.float32]:
    """Return rows of `final` or `final_normed` behind the final norm, in float32."""
    return ends.norm(rows) if name == FINAL else np.asarray(rows, np.float32)


def standing_out(rows: NDArray[np.float32], heads: NDArray[np.float32]) -> float:
    """Return how far the logits of each row's own token are above those of the other rows' tokens.

    `rows` `[R, H]` are normed states, `heads` `[R, H]` the lm_head's rows of their next tokens. In deviations
    of the others, after what is common to a row and to a token is taken away: a frequent token is likely
    everywhere.
    """
    logits = rows @ heads.T
    logits -= logits.mean(0)
    logits -= logits.mean(1, keepdims=True)
    own, n_rows = logits.diagonal(), len(logits)
    others = n_rows * (n_rows - 1)
    mean = (logits.sum() - own.sum()) / others
    square = (np.vdot(logits, logits) - np.vdot(own, own)) / others
    deviation = float(np.sqrt(max(float(square - mean * mean), 0.0)))
    return float(own.mean()) / deviation if deviation > 0 else 0.0


def embed_tolerance(schema: Schema) -> float:
    """Return the error of a row of `embed` at most: that of rounding it twice."""
    return 2 * ROUNDING[schema.tensor(EMBED).dtype]


def _typical(ends: Ends, name: str, audited: Sequence[Audited]) -> tuple[float, str]:
    """Return how far own tokens stand out on the audit set, 0 where that tells nothing, and it in words."""
    own, others = [], []
    for sample in audited:
        ids = sample.token_ids
        at = picked(ids, sample.loss_mask, len(ids))
        if len(at) < LEAST_ROWS:
            continue
        heads = ends.head(ids[at + 1])
        own.append(standing_out(normed_rows(ends, name, sample.tensors[name][at]), heads))
        for other in audited:
            within = (at < len(other.token_ids)) & (at >= _alike(ids, other.token_ids))
            if other is sample or within.sum() < LEAST_ROWS:
                continue
            rows = normed_rows(ends, name, other.tensors[name][at[within]])
            others.append(standing_out(rows, heads[within]))
    if len(own) < 2 or not others:
        return 0.0, f"not by {name} (too few audit samples have {LEAST_ROWS} different tokens: {len(own)})"
    typical, most = median(own), max(others)
    clear = typical >= LEAST_TYPICAL and most < SHARE * typical
    how = f"own next tokens stand out by {typical:.1f} deviations on the audit set, others' by {most:.1f}"
    return (typical, f"by {name} ({how})") if clear else (0.0, f"not by {name} ({how})")


def _alike(ids: NDArray[np.int32], others: NDArray[np.int32]) -> int:
    """Return how many tokens two samples have in common at their beginnings: their states are the same."""
    n_both = min(len(ids), len(others))
    apart = np.flatnonzero(ids[:n_both] != others[:n_both])
    return int(apart[0]) if apart.size else n_both


def _table_holds(ends: Ends, schema: Schema, audited: Sequence[Audited]) -> tuple[bool, str]:
    if not audited:
        return False, "not by embed (no audit set)"
    errors = np.concatenate(
        [token_errors(sample.tensors[EMBED], ends.embed(sample.token_ids)) for sample in audited]
    )
    wrong = int((~(errors <= embed_tolerance(schema))).sum())
    if wrong:
        share = f"{wrong} of {errors.size} rows of the audit set"
        return False, f"not by embed ({share} are not the embedding table's)"
    return True, "by embed (rows of the embedding table)"
