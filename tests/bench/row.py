"""One measured figure beside its baseline; the ratio is what counts, the machine moves both."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of the table: `ratio` is value over `baseline`, and `goal` what it is meant to reach.

    A goal is a floor unless `at_most`; a row without one is there for comparison. Where nothing was
    measured the value is NaN, and the name says why.
    """

    name: str
    value: float
    unit: str
    ratio: float | None = None
    baseline: str | None = None
    goal: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the ratio (or the value, where there is none) reaches the goal; `None` without one."""
        measured = self.value if self.ratio is None else self.ratio
        if self.goal is None or math.isnan(measured):
            return None
        return measured <= self.goal if self.at_most else measured >= self.goal


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(
    subject: Callable[[], float], baseline: Callable[[], float], pairs: int
) -> tuple[float, float, float]:
    """Return the medians of both rates and of their ratio over `pairs` of runs, first by turns.

    The two runs of a pair lie close together, so what else the machine does falls on both.
    """
    measured = []
    for number in range(pairs):
        order = (subject, baseline) if number % 2 else (baseline, subject)
        first, second = order[0](), order[1]()
        measured.append((first, second) if number % 2 else (second, first))
    rates, others = zip(*measured, strict=True)
    ratios = [rate / other for rate, other in measured]
    return statistics.median(rates), statistics.median(others), statistics.median(ratios)
