"""Loss masks that are whole and yet look like another sample's: spans that begin where no other file's do.

A chat template writes the same tokens before each answer, so the trained spans of nearly all files begin
behind the same few. A mask of another sample of the same length begins anywhere; where one does, its file is
told. Of text without such a template nothing can be told: then no tokens stand before enough spans.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.problem import Problem

_TOKENS = 3
_NO_TOKEN = -1
"""Before the first one of a sample."""
_USUAL_FILES, _USUAL_SHARE = 3, 0.05
"""Tokens are a template's where spans of so many files begin behind them, and of such a share of all."""
_EXPLAINED = 0.25
"""Of all files so many have no other spans, or there is no template."""
_SHOWN = 6

Beginnings = frozenset[tuple[int, ...]]


class Masked(NamedTuple):
    """A file by its name, how many tokens it trains on, and the tokens before its trained spans."""

    name: str
    n_trained: int
    begins: Beginnings


def begins_of(ids: NDArray[np.int64], mask: NDArray[np.uint8]) -> Beginnings:
    """Return the three tokens before each span of ones, the same ones once.

    >>> sorted(begins_of(np.array([5, 6, 7, 8, 9]), np.array([1, 0, 0, 0, 1], np.uint8)))
    [(-1, -1, -1), (6, 7, 8)]
    """
    trained = mask != 0
    firsts = np.flatnonzero(trained & ~np.concatenate([[False], trained[:-1]]))
    behind = np.concatenate([np.full(_TOKENS, _NO_TOKEN, np.int64), ids])
    return frozenset(tuple(behind[first : first + _TOKENS].tolist()) for first in firsts)


def mask_notes(files: Sequence[Masked]) -> Iterator[Problem]:
    """Yield notes of the files that train on nothing, and of those whose spans begin where others' do not."""
    empty = [one.name for one in files if not one.n_trained]
    if empty:
        message = f"expected tokens to train on, got masks of zeros in {_some(empty)}"
        yield _note("empty", message, "are they meant? a trainer learns nothing of them")
    masked = [one for one in files if one.n_trained]
    counts = Counter(begin for one in masked for begin in one.begins)
    least = max(_USUAL_FILES, _USUAL_SHARE * len(masked))
    usual = {begin for begin, count in counts.items() if count >= least}
    odd = [one.name for one in masked if not one.begins <= usual]
    if not odd or len(masked) - len(odd) < max(_USUAL_FILES, _EXPLAINED * len(masked)):
        return
    (most, _), *_ = counts.most_common(1)
    told = " ".join(str(token) for token in most if token != _NO_TOKEN) or "no others"
    message = (
        f"expected trained spans behind tokens that a template writes, as {told}, "
        f"got spans behind others in {_some(odd)}"
    )
    yield _note(
        "begins", message, "are these masks other samples'? look at one, and make them again where so"
    )


def _note(kind: str, message: str, repair: str) -> Problem:
    return Problem(where="loss_mask", kind=kind, message=message, repair=repair, severity="note")


def _some(names: Sequence[str]) -> str:
    more = f", {', '.join(names[:_SHOWN])}" + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names):,} files{more}" if len(names) > 1 else names[0]
