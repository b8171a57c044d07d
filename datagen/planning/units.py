"""Units of work: which samples become one part, and in which batches they run.

A unit is balanced by tokens and mixed in length (samples stand in the order of their hash); inside it batches
are sorted by length under a token budget, so that padding stays small. Pure: the same prompts always make the
same units.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from datagen.config import PartSettings
from datagen.prompts.prompt import Prompt

UNITS_A_WORKER = 4
"""A run makes at least this many units a worker, so that none idles while another works on its last."""
MIN_UNIT_TOKENS = 8192


@dataclass(frozen=True)
class Unit:
    """Samples that become one part. `attempts` counts how often it failed."""

    number: str
    prompts: tuple[Prompt, ...]
    attempts: int = 0

    @property
    def n_tokens(self) -> int:
        return sum(prompt.n_planned for prompt in self.prompts)

    def failed(self) -> "Unit":
        """Return this unit with one more failed attempt."""
        return replace(self, attempts=self.attempts + 1)

    def halves(self) -> tuple["Unit", ...]:
        """Return two units of half the samples each, no attempts yet; raises `ValueError` for one sample."""
        if len(self.prompts) < 2:
            raise ValueError("a unit of one sample cannot be halved")
        middle = len(self.prompts) // 2
        return (
            Unit(f"{self.number}a", self.prompts[:middle]),
            Unit(f"{self.number}b", self.prompts[middle:]),
        )


def make_units(
    prompts: Sequence[Prompt], token_bytes: int, parts: PartSettings, n_workers: int
) -> list[Unit]:
    """Split prompts into units that fill a part each, or less where workers would otherwise idle."""
    ordered = sorted(prompts, key=lambda prompt: prompt.sample_id)
    total = sum(prompt.n_planned for prompt in ordered)
    if not total:
        return []
    largest = max(1, parts.max_bytes // token_bytes)
    shared = max(MIN_UNIT_TOKENS, -(-total // (n_workers * UNITS_A_WORKER)))
    n_units = max(-(-total // min(largest, shared)), -(-len(ordered) // parts.max_samples))
    budget = -(-total // n_units)
    units: list[Unit] = []
    for group in _groups(ordered, budget, largest, parts.max_samples):
        units.append(Unit(str(len(units)), tuple(group)))
    return units


def _groups(prompts: Sequence[Prompt], budget: int, largest: int, max_samples: int) -> Iterator[list[Prompt]]:
    group: list[Prompt] = []
    tokens = 0
    for prompt in prompts:
        length = prompt.n_planned
        if group and (tokens >= budget or tokens + length > largest or len(group) >= max_samples):
            yield group
            group, tokens = [], 0
        group.append(prompt)
        tokens += length
    if group:
        yield group


def batches(prompts: Sequence[Prompt], batch_tokens: int) -> Iterator[list[Prompt]]:
    """Yield batches in the order of length, each at most `batch_tokens` padded tokens, or one sample alone.

    The longest go first: what does not fit in memory fails before anything else was done.
    """
    batch: list[Prompt] = []
    for prompt in sorted(prompts, key=lambda prompt: (-len(prompt.input_ids), prompt.sample_id)):
        longest = len(batch[0].input_ids) if batch else len(prompt.input_ids)
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch
