"""How fast the engine is here: a few seconds of real batches through a real worker, nothing written."""

from collections.abc import Sequence
from dataclasses import replace

from datagen.driver.driver import Job, work_order
from datagen.driver.fleet import Fleet
from datagen.prompts.prompt import Prompt

PROBE_TOKENS = 200_000


def probe(job: Job) -> float:
    """Return tokens a second of the whole fleet, as one worker's rate times the workers there would be.

    Raises `FleetError` or `EngineError` when the engine cannot start: then the run could not either.
    """
    fleet = Fleet(replace(work_order(job), writes=False), job.config.workers, job.config.ray)
    try:
        n_workers = len(fleet.start(max(1, len(job.todo))))
        rates: list[float] = fleet.call_each("probe", _some(job.todo), job.config.plan.probe_seconds)
        return sum(rates[:n_workers])
    finally:
        fleet.close()


def _some(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return prompts of all lengths, spread over the whole: a probe of the longest alone would mislead."""
    total = sum(prompt.n_planned for prompt in prompts)
    step = max(1, total // PROBE_TOKENS)
    return sorted(prompts, key=lambda prompt: prompt.sample_id)[::step]
