"""Findings without a draft: accuracies that are given, a little more or less in each conversation."""

import numpy as np

from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs
from datagen.replay.measuring import Scores
from datagen.replay.score import DEFINITIONS, Tally
from datagen.replay.screening import Findings
from schemas.wiring import TargetRole


def scores(share: float, n: int = 12) -> Scores:
    """Return scores about `share`, a little more or less in each conversation."""
    counted = np.full(n, 100)
    tally = Tally((counted * share).astype(int) + np.arange(n) % 3, counted)
    return Scores(dict.fromkeys(DEFINITIONS, tally), (tally, tally), 2.5)


def found(shares: dict[Inputs, float], n: int = 12, role: TargetRole = TRUE_TARGET) -> Findings:
    measured = {Candidate(inputs, role): scores(share, n) for inputs, share in shares.items()}
    best = max(measured, key=lambda one: measured[one].learned.pooled)
    return Findings(measured, best, n, len(measured), role=role)
