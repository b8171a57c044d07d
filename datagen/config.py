"""The run's configuration: one file, one prefix, read once at the edge and passed down as values.

A setting comes from, in this order: a flag (`--engine.model PATH`), the environment (`STRATA_ENGINE__MODEL`),
the TOML file, the default. Every wrong one is reported at once.
"""

import json
import os
import re
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from datagen.engines.sampling import ANSWERING
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.flags import ENV_DELIMITER, ENV_PREFIX, Flag, by_setting, misspelt_variables, read_flags
from datagen.placement import WorkerSettings, placement_problems
from datagen.prompts.settings import PromptSettings
from schemas.problem import Problem
from schemas.record import validation_problems
from schemas.reference import name_problems

T = TypeVar("T", bound=tuple[str, str | None])
WRITTEN = "write a list or a mapping as JSON"


def _listed(value: object) -> object:
    """Return a list that was written as text, in a flag or a variable: with commas, or as JSON.

    >>> _listed("embed, final"), _listed('["embed"]'), _listed(["embed"])
    (['embed', 'final'], ['embed'], ['embed'])
    """
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"expected names with commas between, or a JSON list, got {value!r}") from error
    return [name.strip() for name in value.split(",")]


def _dataset_name(name: str) -> str:
    told = [problem.message for problem in name_problems(name)]
    if name.endswith(".audit"):
        told.append("expected a name that does not end in .audit, which a run gives to its companion")
    if told:
        raise ValueError("; ".join(told))
    return name


DatasetName = Annotated[str, AfterValidator(_dataset_name)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]


class Section(BaseModel):
    """A section of the file: closed, so that a misspelt key is an error, and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputSettings(Section):
    """Where the dataset goes."""

    root: str = Field(min_length=1, description="a folder, or s3://, gs://, az://")
    dataset: DatasetName = Field(description="the dataset's name under the root")
    max_quarantined_share: float = Field(
        default=0.0, ge=0.0, le=1.0, description="of the prompts read; above it a run ends with exit code 1"
    )


class TensorSettings(Section):
    """Which hidden states are kept."""

    names: Names = Field(
        min_length=1, description="embed, layer{b}, final, final_normed; with commas between"
    )
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"


class GenerateSettings(Section):
    """The target answers first, and the states of its own text are captured.

    Without this section the prompts have their answers. All but `n` and `batch` decide a dataset's content.
    """

    max_tokens: PositiveInt = Field(description="tokens of an answer at most; a sample's stand in prompts")
    temperature: float = Field(default=0.0, ge=0.0, description="0 takes the likeliest token")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="share of the probability to choose from")
    stop: Names = Field(default=(), description="texts that end an answer, each a part of it")
    n: PositiveInt = Field(default=1, description="answers to each prompt; a later run may ask for more")
    seed: int = Field(default=0, ge=0, lt=2**63)
    on_truncated: Literal["keep", "quarantine"] = Field(
        default="keep", description="what becomes of an answer that max_tokens cut"
    )
    batch: PositiveInt = Field(default=32, description="answers that a worker makes side by side")


class PartSettings(Section):
    """When a part closes, and when parts are committed."""

    max_bytes: int = Field(default=1 << 30, ge=1 << 16, description="hidden bytes of a part")
    max_samples: PositiveInt = 4096
    commit_every_parts: PositiveInt = 64
    commit_every_seconds: PositiveFloat = 600.0


class AuditSettings(Section):
    """The companion dataset `<dataset>.audit`: a few short samples with every boundary."""

    samples: int = Field(default=8, ge=0, description="0 makes no audit set")
    max_tokens: PositiveInt = 128
    reference: Literal["auto", "hf", "engine", "none"] = Field(
        default="auto",
        description="what it is held against: transformers, the engine again, or (auto) the first that fits",
    )


class RaySettings(Section):
    """Which cluster to join."""

    address: str | None = Field(
        default=None,
        description="`auto`, HOST:PORT or ray://; empty: RAY_ADDRESS where set, else Ray is started here",
    )


class PlanSettings(Section):
    """What `strata plan` may take as given instead of reading or measuring it."""

    tokens_per_second: PositiveFloat | None = Field(
        default=None, description="of the whole fleet; empty: measured by a short probe"
    )
    samples: PositiveInt | None = Field(default=None, description="instead of reading the prompts")
    tokens_per_sample: PositiveFloat | None = Field(default=None, description="goes with samples")
    model_config_file: str | None = Field(
        default=None, description="a config.json to take the target's shape from, instead of the model"
    )
    answer_tokens: PositiveFloat | None = Field(
        default=None, description="tokens expected of an answer; empty: half of generate.max_tokens"
    )
    probe_seconds: PositiveFloat = 10.0


class RunConfig(BaseSettings):
    """Everything of a run."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER, extra="forbid", frozen=True
    )

    output: OutputSettings
    prompts: PromptSettings
    engine: EngineSettings
    tensors: TensorSettings
    generate: GenerateSettings | None = None
    parts: PartSettings = PartSettings()
    workers: WorkerSettings = WorkerSettings()
    audit: AuditSettings = AuditSettings()
    ray: RaySettings = RaySettings()
    plan: PlanSettings = PlanSettings()


def setting_names(model: type[BaseModel] = RunConfig, prefix: str = "") -> tuple[str, ...]:
    """Return every setting as it is written in a flag.

    >>> "output.root" in setting_names(), "output" in setting_names()
    (True, False)
    """
    names: list[str] = []
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        names += [prefix + name] if section is None else setting_names(section, f"{prefix}{name}.")
    return tuple(names)


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the section of a field, also of one that may be absent."""
    given = [one for one in get_args(annotation) if one is not NoneType]
    if len(given) == 1:
        annotation = given[0]
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def load_config(flags: Sequence[str], file: Path | None, prog: str) -> RunConfig:
    """Return the configuration of `file`, the environment and `flags` (`["--engine.model", "PATH"]`).

    Raises `ConfigError` with every wrong setting.
    """
    names = setting_names()
    given, problems = read_flags(flags, names)
    problems += misspelt_variables(os.environ, names)
    content = _toml(file) if file else {}
    flag_values = _flag_values(given, prog, problems)
    variable_values = _variable_values(problems)

    class Sourced(RunConfig):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            *_unused: PydanticBaseSettingsSource,
            **_others: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            given = (InitSettingsSource(settings_cls, values) for values in (flag_values, variable_values))
            return *given, init_settings

    try:
        config = Sourced(**content)
    except ValidationError as error:
        problems += by_setting(_placed(validation_problems(error), names), names)
    else:
        problems += _contradictions(config)
        if not problems:
            return RunConfig.model_validate(config.model_dump())
    where = f"{file}, environment and flags" if file else "environment and flags, no --config FILE"
    raise ConfigError(f"the configuration cannot be used ({where})", problems)


def print_settings(parser: ArgumentParser) -> None:
    """Print the help of `parser`, and below it every setting: as a flag, with its meaning and its default."""
    CliSettingsSource(RunConfig, root_parser=parser, cli_avoid_json=True, cli_hide_none_type=True)
    parser.print_help()


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        got = "no such file"
    except IsADirectoryError:
        got = "a folder"
    except OSError as error:
        got = (error.strerror or str(error)).lower()
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        got = str(error)
    problem = Problem(where=str(file), kind="file", message=f"expected a TOML file, got: {got}")
    raise ConfigError("the configuration cannot be read", [problem])


def _flag_values(given: Sequence[Flag], prog: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the flags' values, nested as the settings are; those that cannot be parsed become problems."""

    def parsed(flags: Sequence[Flag]) -> dict[str, Any]:
        words = [f"--{flag.name}={flag.value}" for flag in flags]
        return CliSettingsSource[Any](
            RunConfig,
            cli_parse_args=words,
            cli_prog_name=prog,
            cli_exit_on_error=False,
            cli_avoid_json=True,
        )()

    return _readable(given, parsed, lambda flag: f"--{flag.name}", problems)


def _variable_values(problems: list[Problem]) -> dict[str, Any]:
    """Return the environment's values, nested as the settings are; unreadable ones become problems."""
    source = EnvSettingsSource(RunConfig)

    def parsed(variables: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
        source.env_vars = dict(variables)
        return source()

    return _readable(list(source.env_vars.items()), parsed, lambda variable: variable[0].upper(), problems)


def _readable(
    given: Sequence[T],
    parsed: Callable[[Sequence[T]], dict[str, Any]],
    named: Callable[[T], str],
    problems: list[Problem],
) -> dict[str, Any]:
    """Parse all of `given`; where that fails, each alone, so that every unreadable one gets its problem."""
    try:
        return parsed(given)
    except SettingsError:
        readable = []
    for one in given:
        try:
            parsed([one])
        except SettingsError:
            message = f"expected a value that can be parsed, got {one[1]!r}"
            problems.append(Problem(where=named(one), kind="unreadable", message=message, repair=WRITTEN))
        else:
            readable.append(one)
    return parsed(readable)


def _placed(problems: Sequence[Problem], names: Sequence[str]) -> list[Problem]:
    """Return the problems at the settings that they are about.

    A missing section is its required settings; a section's own check names the setting in its message.
    """
    placed: list[Problem] = []
    for problem in problems:
        section = _section(getattr(RunConfig.model_fields.get(problem.where), "annotation", None))
        named = re.match(r"(\w+): (.*)", problem.message)
        if section is not None and problem.kind == "missing":
            required = [name for name, field in section.model_fields.items() if field.is_required()]
            placed += [
                problem.model_copy(update={"where": f"{problem.where}.{name}"}) for name in required
            ] or [problem]
        elif named and f"{problem.where}.{named[1]}" in names:
            where = f"{problem.where}.{named[1]}"
            placed.append(problem.model_copy(update={"where": where, "message": named[2]}))
        else:
            placed.append(problem)
    return placed


def _contradictions(config: RunConfig) -> list[Problem]:
    problems: list[Problem] = []
    if not all(config.prompts.paths):
        message = "expected a file, folder, glob or hub id, got an empty text"
        problems.append(Problem(where="prompts.path", kind="empty", message=message))
    if config.tensors.dtype != config.engine.dtype:
        message = f"expected {config.engine.dtype} as engine.dtype, got {config.tensors.dtype}"
        repair = "states are kept as they are computed, never cast"
        problems.append(Problem(where="tensors.dtype", kind="dtype", message=message, repair=repair))
    if config.audit.reference == "hf" and not config.engine.model:
        message = f"expected auto, engine or none for the engine {config.engine.name}, got hf"
        problems.append(Problem(where="audit.reference", kind="audit", message=message))
    problems += placement_problems(config.workers, config.engine)
    problems += _generate_problems(config)
    if (config.plan.samples is None) != (config.plan.tokens_per_sample is None):
        message = "expected samples and tokens_per_sample together, got one"
        problems.append(Problem(where="plan", kind="plan", message=message))
    return problems


def _generate_problems(config: RunConfig) -> list[Problem]:
    generate = config.generate
    if generate is None:
        return []
    told: list[tuple[str, str, str]] = []
    if config.engine.name not in ANSWERING:
        expected = f"expected one of {', '.join(sorted(ANSWERING))}, whose target can answer"
        told.append(("engine.name", f"{expected}, got {config.engine.name}", "or leave [generate] out"))
    if generate.n > 1 and generate.temperature == 0:
        message = f"expected 1 at temperature 0, where all answers are the same, got {generate.n}"
        told.append(("generate.n", message, "set generate.temperature above 0"))
    if generate.max_tokens >= config.prompts.max_tokens:
        message = (
            f"expected fewer than prompts.max_tokens = {config.prompts.max_tokens}, which holds the prompt "
            f"and its answers, got {generate.max_tokens}"
        )
        told.append(("generate.max_tokens", message, "raise prompts.max_tokens"))
    if not all(generate.stop):
        told.append(("generate.stop", "expected texts, got an empty one", "leave it out"))
    if generate.stop and config.engine.name == "synthetic":
        told.append(("generate.stop", "expected none for the engine synthetic, which has no text", ""))
    return [
        Problem(where=where, kind="generate", message=message, repair=repair or None)
        for where, message, repair in told
    ]
