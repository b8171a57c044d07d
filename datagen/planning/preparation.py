"""What `plan` and `run` both need first: the target, the schema, the prompts; every problem at once.

Nothing is written here, and no weights are loaded.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from datagen.config import RunConfig
from datagen.engines.opening import (
    ending_token_ids,
    engine_version,
    giving,
    longest_sample,
    read_target,
)
from datagen.engines.sampling import Sampling
from datagen.errors import ConfigError
from datagen.planning.audit_names import AuditNames, audit_names
from datagen.planning.places import root_problems
from datagen.planning.rendering import template_of
from datagen.prompts.asking import Asking, make_asks
from datagen.prompts.locate import locate
from datagen.prompts.prompt import Prompt
from datagen.prompts.render import make_prompts
from datagen.prompts.stats import PromptStats
from datagen.store.door import Door
from datagen.store.errors import NotFoundError
from datagen.store.layout import Layout
from datagen.store.opening import open_door
from datagen.template.chat import ChatTemplate
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
    audited: AuditNames
    """The tensors of its audit set, where it makes one."""
    sampling: Sampling | None = None
    """How the target answers; `None` where its states over the prompts as they are are captured."""

    @property
    def n_tokens(self) -> int:
        return sum(prompt.n_planned for prompt in self.prompts)


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
        found += _tried(found, lambda: _length_problems(config)) or []
    audited = None
    if schema is not None:
        declared = schema
        audited = _tried(found, lambda: _audited(config, declared))
    found += root_problems(config.output.root)
    if door is not None:
        place = door
        _tried(found, lambda: _ask(place, config.output.dataset))
    read = _tried(found, lambda: _read(config, target, run_id))
    if door is None or target is None or schema is None or audited is None or read is None or found:
        # What keeps every question from an answer (no server) is told once.
        raise ConfigError("the run cannot start", list(dict.fromkeys(found)))
    return Preparation(
        door=door,
        target=target,
        schema=schema,
        provenance=provenance_of(config, read.sampling),
        prompts=read.prompts,
        stats=read.stats,
        quarantined=read.quarantined,
        audited=audited,
        sampling=read.sampling,
    )


def _audited(config: RunConfig, schema: Schema) -> AuditNames:
    """Return what the engine can give for an audit set; raises `ConfigError` where it lacks the run's own."""
    asked = giving(config.engine)
    if problems := asked(schema, schema):
        raise ConfigError("the engine cannot give the tensors of the run", problems)
    return audit_names(asked, schema)


def _ask(door: Door, dataset: str) -> None:
    """Raise `DoorError` where the root does not answer; whether the dataset is there is another question."""
    with suppress(NotFoundError):
        door.read(Layout(dataset).dataset)


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
    sampling: Sampling | None = None


def _read(config: RunConfig, target: Target | None, run_id: str) -> _Read:
    """Read the prompts; without a target they are only looked for, so that their problems are told too."""
    if target is None:
        locate(config.prompts)
        return _Read((), (), PromptStats(run_id))
    stats = PromptStats(run_id)
    prompts: list[Prompt] = []
    refused: list[QuarantinedSample] = []
    template = template_of(config.engine, config.prompts)
    sampling = sampling_of(config, template)
    if sampling is None:
        items = make_prompts(config.prompts, template, target.vocab_size, stats)
    else:
        items = make_asks(config.prompts, template, target.vocab_size, stats, _asking(config, sampling))
    for item in items:
        if isinstance(item, Prompt):
            prompts.append(item)
        else:
            refused.append(item)
    return _Read(tuple(prompts), tuple(refused), stats, sampling)


def sampling_of(config: RunConfig, template: ChatTemplate | None) -> Sampling | None:
    """Return how the target answers, or `None` in capture mode.

    An answer ends at a token that the model's files name, or that the template writes behind an answer.
    """
    generate = config.generate
    if generate is None:
        return None
    endings = {*ending_token_ids(config.engine), *(template.ending_token_ids() if template else ())}
    return Sampling(
        max_tokens=generate.max_tokens,
        sample_tokens=config.prompts.max_tokens,
        temperature=generate.temperature,
        top_p=generate.top_p,
        stop=generate.stop,
        stop_token_ids=tuple(sorted(endings)),
    )


def _asking(config: RunConfig, sampling: Sampling) -> Asking:
    assert config.generate is not None
    expected = config.plan.answer_tokens or sampling.max_tokens / 2
    return Asking(
        request={"mode": "generate", **_decisive(config, sampling)},
        n=config.generate.n,
        expected_tokens=round(min(expected, sampling.max_tokens)),
        most_tokens=sampling.max_tokens,
    )


def _decisive(config: RunConfig, sampling: Sampling) -> dict[str, object]:
    """Return what decides the answers to a prompt: how many there are does not."""
    assert config.generate is not None
    return {**sampling.model_dump(mode="json"), "seed": config.generate.seed}


def _tried(found: list[Problem], step: Callable[[], T]) -> T | None:
    try:
        return step()
    except StrataError as error:
        headline = Problem(where="run", kind=type(error).__name__, message=error.headline)
        found += error.problems or (headline,)
        return None


def provenance_of(config: RunConfig, sampling: Sampling | None) -> Provenance:
    """Return what decides the content of this run's samples."""
    decisive: dict[str, object] | None = None
    if sampling is not None and config.generate is not None:
        decisive = {**_decisive(config, sampling), "on_truncated": config.generate.on_truncated}
    return Provenance(
        engine=config.engine.name,
        engine_version=engine_version(config.engine),
        dtype=config.engine.dtype,
        mode="capture" if decisive is None else "generate",
        max_tokens=config.prompts.max_tokens,
        on_too_long=config.prompts.on_too_long,
        min_trained_tokens=config.prompts.min_trained_tokens,
        sampling=decisive,
        engine_arguments=dict(config.engine.arguments),
    )
