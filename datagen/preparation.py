"""What `plan` and `run` both need first: the target, the schema, the prompts; every problem at once.

Nothing is written here, and no weights are loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from datagen.config import RunConfig
from datagen.engines.opening import engine_version, longest_sample, read_target
from datagen.errors import ConfigError
from datagen.places import root_problems
from datagen.prompts.locate import locate
from datagen.prompts.prompt import Prompt
from datagen.prompts.render import make_prompts
from datagen.prompts.stats import PromptStats
from datagen.store.door import Door
from datagen.store.opening import open_door
from datagen.template.chat import ChatTemplate
from datagen.template.tokenizer import load_tokenizer
from schemas.errors import StrataError
from schemas.problem import Problem
from schemas.provenance import Provenance
from schemas.records import QuarantinedSample
from schemas.schema import Schema
from schemas.target import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Preparation:
    """Everything that is known before a model is loaded."""

    door: Door
    target: Target
    schema: Schema
    provenance: Provenance
    prompts: tuple[Prompt, ...]
    stats: PromptStats
    quarantined: tuple[QuarantinedSample, ...]

    @property
    def n_tokens(self) -> int:
        return sum(len(prompt.input_ids) for prompt in self.prompts)


def prepare(config: RunConfig, run_id: str) -> Preparation:
    """Read the target's identity and the prompts.

    Raises `ConfigError` with what is wrong with the model, the tensors, the prompts and the root together.
    """
    found: list[Problem] = []
    door = _tried(found, lambda: open_door(config.output.root))
    target = _tried(found, lambda: read_target(config.engine))
    schema = None
    if target is not None:
        schema = _tried(found, lambda: Schema.declare(target, config.tensors.names, config.tensors.dtype))
        found += _length_problems(config)
    found += root_problems(config.output.root)
    read = _tried(found, lambda: _read(config, target, run_id))
    if door is None or target is None or schema is None or read is None or found:
        raise ConfigError("the run cannot start", found)
    return Preparation(
        door=door,
        target=target,
        schema=schema,
        provenance=provenance_of(config),
        prompts=read.prompts,
        stats=read.stats,
        quarantined=read.quarantined,
    )


def _length_problems(config: RunConfig) -> list[Problem]:
    """Return what is wrong with the longest sample asked for: it would fail its batch, hours into a run."""
    longest = longest_sample(config.engine)
    if longest is None or config.prompts.max_tokens <= longest:
        return []
    message = f"expected at most the {longest} positions of the model, got {config.prompts.max_tokens}"
    return [Problem(where="prompts.max_tokens", kind="length", message=message)]


class _Read(NamedTuple):
    prompts: tuple[Prompt, ...]
    quarantined: tuple[QuarantinedSample, ...]
    stats: PromptStats


def _read(config: RunConfig, target: Target | None, run_id: str) -> _Read:
    """Read the prompts; without a target they are only looked for, so that their problems are told too."""
    if target is None:
        locate(config.prompts)
        return _Read((), (), PromptStats(run_id))
    stats = PromptStats(run_id)
    prompts: list[Prompt] = []
    refused: list[QuarantinedSample] = []
    for item in make_prompts(config.prompts, _template(config), target.vocab_size, stats):
        if isinstance(item, Prompt):
            prompts.append(item)
        else:
            refused.append(item)
    return _Read(tuple(prompts), tuple(refused), stats)


def _template(config: RunConfig) -> ChatTemplate | None:
    engine = config.engine
    if engine.model is None:
        return None
    tokenizer = load_tokenizer(
        engine.model, revision=engine.revision, trust_remote_code=engine.trust_remote_code
    )
    if not tokenizer.chat_template:
        return None  # prompts that are tokens already need none; messages are refused where they come up
    return ChatTemplate(tokenizer, config.prompts.template_options)


def _tried(found: list[Problem], step: Callable[[], T]) -> T | None:
    try:
        return step()
    except StrataError as error:
        headline = Problem(where="run", kind=type(error).__name__, message=error.headline)
        found += error.problems or (headline,)
        return None


def provenance_of(config: RunConfig) -> Provenance:
    """Return what decides the content of this run's samples."""
    return Provenance(
        engine=config.engine.name,
        engine_version=engine_version(config.engine),
        dtype=config.engine.dtype,
        mode="capture",
        max_tokens=config.prompts.max_tokens,
        on_too_long=config.prompts.on_too_long,
        min_trained_tokens=config.prompts.min_trained_tokens,
    )
