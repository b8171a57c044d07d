"""Capture through vLLM over vLLM's own extraction to files, and over its plain prefill; engine hf beside it.

A real vLLM for CPUs, in an environment of its own that `make vllm` makes. The ways of
`tests.with_vllm.measure` run in turn, each in a process of its own, and the best of a way counts: what else
the machine does is lost.
"""

import math
import os

from tests.bench.row import Row
from tests.with_vllm.environment import READY
from tests.with_vllm.measure import WAYS, Way, asked

ROUNDS = 2
GOAL = 0.95
"""Of the rate of vLLM's own extraction: states that stay in memory must not be dearer than files."""
MAKE = "python -m tests.with_vllm.environment"


def run() -> list[Row]:
    """Measure every way, or say that there is no vLLM here and how to get it."""
    if not READY.is_file():
        return [Row(f"not measured: there is no vLLM here; {MAKE} makes it (3 GB)", math.nan, "tokens/s")]
    best: dict[Way, float] = dict.fromkeys(WAYS, 0.0)
    for number in range(ROUNDS):
        # First by turns: what the machine does meanwhile falls on all of them.
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            best[way] = max(best[way], asked(way))
    return rows_of(best, os.cpu_count() or 1)


def rows_of(best: dict[Way, float], n_cores: int) -> list[Row]:
    """Return the rates of the ways as rows."""
    ours, files = best["engine vllm"], best["vLLM to files"]
    prefill, hf = best["vLLM prefill"], best["engine hf"]
    where = f"{n_cores} cores"
    return [
        Row(f"engine vllm ({where})", ours, "tokens/s", ours / files, "vLLM's extraction to files", GOAL),
        Row(f"engine vllm ({where})", ours, "tokens/s", ours / prefill, "vLLM's plain prefill"),
        Row(f"vLLM's extraction to files ({where})", files, "tokens/s", files / prefill, "its plain prefill"),
        Row(f"engine hf ({where})", hf, "tokens/s", hf / ours, "engine vllm"),
    ]
