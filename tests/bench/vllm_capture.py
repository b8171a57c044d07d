"""Capture through vLLM over vLLM's own extraction to files, and over its plain prefill; engine hf beside it.

A real vLLM for CPUs, in an environment of its own that `make vllm` makes. The ways of
`tests.with_vllm.measure` run in turn, each in a process of its own; a ratio is the median of those of each
round, whose runs lie close together.
"""

import math
import os
import statistics
from collections.abc import Mapping, Sequence

from tests.bench.row import Row
from tests.with_vllm.environment import READY
from tests.with_vllm.measure import WAYS, Way, asked

ROUNDS = 3
GOAL = 0.95
"""Of the rate of vLLM's own extraction: states that stay in memory must not be dearer than files."""
MAKE = "python -m tests.with_vllm.environment"


def run() -> list[Row]:
    """Measure every way, or say that there is no vLLM here and how to get it."""
    if not READY.is_file():
        return [Row(f"not measured: there is no vLLM here; {MAKE} makes it (3 GB)", math.nan, "tokens/s")]
    rates: dict[Way, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS):
        # First by turns: what the machine does meanwhile falls on all of them.
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            rates[way].append(asked(way))
    return rows_of(rates, os.cpu_count() or 1)


def rows_of(rates: Mapping[Way, Sequence[float]], n_cores: int) -> list[Row]:
    """Return the rates of the ways, a number a round, as rows."""

    def row(way: Way, other: Way, baseline: str, goal: float | None = None) -> Row:
        ratio = statistics.median(a / b for a, b in zip(rates[way], rates[other], strict=True))
        name = f"{way} ({n_cores} cores)"
        return Row(name, statistics.median(rates[way]), "tokens/s", ratio, baseline, goal)

    return [
        row("engine vllm", "vLLM to files", "vLLM's extraction to files", GOAL),
        row("engine vllm", "vLLM prefill", "vLLM's plain prefill"),
        row("vLLM to files", "vLLM prefill", "its plain prefill"),
        row("engine hf", "engine vllm", "engine vllm"),
    ]
