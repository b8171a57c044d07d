"""The first rows of every sample against the audit set's rows of the same first tokens.

States of the same beginning are the same vectors, whatever follows: a causal model cannot know it. Samples of
one chat template begin alike, so a few rows a sample tell a swapped, shifted, shortened, normed or stale
tensor, and which one it is instead, of the boundaries that the audit set has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datagen.checks.likeness import likeness
from datagen.checks.rows import ROUNDING, row_norms, token_errors, wide
from datagen.engines.base import Capture
from schemas.problem import Problem
from schemas.schema import DType

PREFIX_ROWS = 8
"""Rows of a beginning that are compared at most."""
ROUNDING_APART = 4.0
"""A row whose nearest other boundary is within so many roundings tells nothing of which one it is: the first
token's norm is some large values that hardly change from layer to layer."""
NOISE = 0.05
"""States of the same tokens move by less in another batch: median 0.5%, 99th percentile 2% in bfloat16."""
CEILING = 0.3
"""Where only a row or two can be compared; one token's experts may be chosen otherwise (17% in a trial)."""
FEW_ROWS = 3


@dataclass(frozen=True)
class PrefixRows:
    """Rows of the audit set by the token ids up to and with their token.

    `rows[name]` is `[R, H]` for every boundary of it; `places` gives the row of a beginning, a tuple of ids.
    """

    dtype: DType
    places: Mapping[tuple[int, ...], int]
    rows: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(
        cls,
        dtype: DType,
        names: Sequence[str],
        beginnings: Iterable[tuple[NDArray[np.generic], Mapping[str, NDArray[np.generic]]]],
    ) -> "PrefixRows":
        """Gather the first rows of samples: their ids and, by name, their tensors `[>= n, H]`."""
        places: dict[tuple[int, ...], int] = {}
        rows: dict[str, list[NDArray[np.generic]]] = {name: [] for name in names}
        for ids, tensors in beginnings:
            for at in range(min(PREFIX_ROWS, len(ids))):
                key = tuple(ids[: at + 1].tolist())
                if key not in places:
                    places[key] = len(places)
                    for name in names:
                        rows[name].append(tensors[name][at])
        return cls(dtype, places, {name: np.stack(found) for name, found in rows.items() if found})

    def problems(self, capture: Capture, n_rows: int = PREFIX_ROWS) -> list[Problem]:
        """Return every tensor whose first rows are not those of the audit set; none where no sample of it
        begins with this token."""
        at = self._known(capture.token_ids[:n_rows])
        if not at:
            return []
        found = (
            self._problem(name, rows[: len(at)], at)
            for name, rows in capture.tensors.items()
            if name in self.rows
        )
        return [problem for problem in found if problem is not None]

    def _known(self, token_ids: NDArray[np.int32]) -> list[int]:
        ids = tuple(token_ids.tolist())
        found = (self.places.get(ids[: end + 1]) for end in range(len(ids)))
        return [row for row in found if row is not None]

    def _problem(self, name: str, rows: NDArray[np.generic], at: list[int]) -> Problem | None:
        reference = self._reference(name)
        rivals, given = reference.rivals[at], wide(rows)
        errors = token_errors(given, reference.rows[at])
        # Of a few values: numpy's median takes 50 times as long, and this runs for every sample.
        own, half = median(errors.tolist()), median(rivals.tolist()) / 2
        # Nearer than half way to any other is nearest: most samples end here.
        if own <= min(half, NOISE):
            return None
        ceiling = CEILING if len(at) < FEW_ROWS else min(CEILING, max(half, NOISE))
        if own <= ceiling and not self._another_is_nearer(name, given, at, errors, rivals):
            return None
        there = {other: values[at] for other, values in self.rows.items()}
        message = (
            f"expected the audit set's rows of the same first {len(at)} tokens, "
            f"got a median error of {own:.1%}: {likeness(given, there, name)}"
        )
        return Problem(where=name, kind="prefix", message=message)

    def _another_is_nearer(
        self,
        name: str,
        given: NDArray[np.float32],
        at: list[int],
        errors: NDArray[np.float32],
        rivals: NDArray[np.float32],
    ) -> bool:
        telling = rivals >= ROUNDING_APART * ROUNDING[self.dtype]
        if not telling.any():
            return False
        own = float(np.median(errors[telling]))
        kept = np.asarray(at)[telling]
        others = (values[kept] for other, values in self.rows.items() if other != name)
        # Half: noise is as far from every other boundary as the own one is, or farther.
        return any(float(np.median(token_errors(given[telling], other))) < own / 2 for other in others)

    @cached_property
    def _references(self) -> dict[str, "_Reference"]:
        return {}

    def _reference(self, name: str) -> "_Reference":
        known = self._references.get(name)
        if known is None:
            mine = wide(self.rows[name])
            apart = [row_norms(mine - wide(other)) for rival, other in self.rows.items() if rival != name]
            nearest = np.min(apart or [np.full(len(mine), np.inf, np.float32)], axis=0)
            rivals = np.asarray(nearest / np.maximum(row_norms(mine), np.float32(1e-20)), np.float32)
            known = self._references[name] = _Reference(mine, rivals)
        return known


class _Reference(NamedTuple):
    """Rows `[R, H]`, and how far each is from the nearest other boundary's `[R]`, relative to its norm."""

    rows: NDArray[np.float32]
    rivals: NDArray[np.float32]
