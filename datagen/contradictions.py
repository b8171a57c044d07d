"""Settings that contradict one another, each well by itself; told also where other settings are wrong.

Each check says what it reads: where one of these is wrong by itself, it is not asked.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from datagen.engines.sampling import ANSWERING, temperature_expected
from datagen.placement import placement_problems
from datagen.run_settings import GenerateSettings, RunConfig
from schemas.problem import Problem


class Check(NamedTuple):
    """What may contradict itself in a configuration, and the settings that it reads."""

    reads: tuple[str, ...]
    problems: Callable[[RunConfig], list[Problem]]


def contradictions(config: RunConfig, wrong: Collection[str] = ()) -> list[Problem]:
    """Return every contradiction among the settings of `config` that are not `wrong` by themselves."""
    return [
        problem
        for check in _CHECKS
        if not any(_is_of(read, one) for read in check.reads for one in wrong)
        for problem in check.problems(config)
    ]


def _is_of(read: str, wrong: str) -> bool:
    return read == wrong or read.startswith(f"{wrong}.") or wrong.startswith(f"{read}.")


def _paths(config: RunConfig) -> list[Problem]:
    if all(config.prompts.paths):
        return []
    message = "expected a file, folder, glob or hub id, got an empty text"
    return [Problem(where="prompts.path", kind="empty", message=message)]


def _dtypes(config: RunConfig) -> list[Problem]:
    if config.tensors.dtype == config.engine.dtype:
        return []
    message = f"expected {config.engine.dtype} as engine.dtype, got {config.tensors.dtype}"
    repair = "states are kept as they are computed, never cast"
    return [Problem(where="tensors.dtype", kind="dtype", message=message, repair=repair)]


def _reference(config: RunConfig) -> list[Problem]:
    if config.audit.reference != "hf" or config.engine.model:
        return []
    message = f"expected auto, engine or none for the engine {config.engine.name}, got hf"
    return [Problem(where="audit.reference", kind="audit", message=message)]


def _placement(config: RunConfig) -> list[Problem]:
    return placement_problems(config.workers, config.engine)


def _assumed(config: RunConfig) -> list[Problem]:
    if (config.plan.samples is None) == (config.plan.tokens_per_sample is None):
        return []
    message = "expected samples and tokens_per_sample together, got one"
    return [Problem(where="plan", kind="plan", message=message)]


def _answering(config: RunConfig) -> list[Problem]:
    if config.generate is None or config.engine.name in ANSWERING:
        return []
    expected = f"expected one of {', '.join(sorted(ANSWERING))}, whose target can answer"
    return [_told("engine.name", f"{expected}, got {config.engine.name}", "or leave [generate] out")]


def _one_answer(generate: GenerateSettings) -> list[Problem]:
    if generate.n == 1 or generate.temperature != 0:
        return []
    message = f"expected 1 at temperature 0, where all answers are the same, got {generate.n}"
    return [_told("generate.n", message, "set generate.temperature above 0")]


def _room(config: RunConfig) -> list[Problem]:
    generate, most = config.generate, config.prompts.max_tokens
    if generate is None or generate.max_tokens < most:
        return []
    expected = f"expected fewer than prompts.max_tokens = {most}, which holds the prompt and its answers"
    return [
        _told("generate.max_tokens", f"{expected}, got {generate.max_tokens}", "raise prompts.max_tokens")
    ]


def _temperature(config: RunConfig) -> list[Problem]:
    generate, name = config.generate, config.engine.name
    if generate is None or (expected := temperature_expected(name, generate.temperature)) is None:
        return []
    message = f"expected {expected}, for the engine {name}, got {generate.temperature:g}"
    return [_told("generate.temperature", message, "0 takes the likeliest token")]


def _stops(generate: GenerateSettings) -> list[Problem]:
    if all(generate.stop):
        return []
    return [_told("generate.stop", "expected texts, got an empty one", "leave it out")]


def _text_to_stop_at(config: RunConfig) -> list[Problem]:
    if config.generate is None or not config.generate.stop or config.engine.name != "synthetic":
        return []
    return [_told("generate.stop", "expected none for the engine synthetic, which has no text", None)]


def _told(where: str, message: str, repair: str | None) -> Problem:
    return Problem(where=where, kind="generate", message=message, repair=repair)


def _of_answers(check: Callable[[GenerateSettings], list[Problem]]) -> Callable[[RunConfig], list[Problem]]:
    return lambda config: [] if config.generate is None else check(config.generate)


_CHECKS = (
    Check(("prompts.path",), _paths),
    Check(("tensors.dtype", "engine.dtype"), _dtypes),
    Check(("audit.reference", "engine.name", "engine.model"), _reference),
    Check(
        (
            "workers.gpus",
            "workers.nodes",
            "engine.name",
            "engine.vllm.tensor_parallel",
            "engine.vllm.executor",
            "engine.sglang.tensor_parallel",
        ),
        _placement,
    ),
    Check(("engine.name",), _answering),
    Check(("generate.n", "generate.temperature"), _of_answers(_one_answer)),
    Check(("generate.max_tokens", "prompts.max_tokens"), _room),
    Check(("generate.temperature", "engine.name"), _temperature),
    Check(("generate.stop",), _of_answers(_stops)),
    Check(("generate.stop", "engine.name"), _text_to_stop_at),
    Check(("plan.samples", "plan.tokens_per_sample"), _assumed),
)
