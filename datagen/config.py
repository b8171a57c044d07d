"""The run's configuration: one file, one prefix, read once at the edge and passed down as values.

A setting comes from, in this order: a flag (`--engine.model PATH`), the environment (`STRATA_ENGINE__MODEL`),
the TOML file, the default. Every wrong one is reported at once.
"""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.prompts.settings import PromptSettings
from schemas.problem import Problem
from schemas.record import validation_problems
from schemas.reference import name_problems


class Section(BaseModel):
    """A section of the file: closed, so that a misspelt key is an error, and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputSettings(Section):
    """Where the dataset goes."""

    root: str = Field(description="a folder, or s3://, gs://, az://")
    dataset: str = Field(description="the dataset's name under the root")
    max_quarantined_share: float = Field(
        default=0.0, ge=0.0, le=1.0, description="of the prompts read; above it a run ends with exit code 1"
    )


class TensorSettings(Section):
    """Which hidden states are kept."""

    names: tuple[str, ...] = Field(min_length=1, description="embed, layer{b}, final, final_normed")
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"


class PartSettings(Section):
    """When a part closes, and when parts are committed."""

    max_bytes: int = Field(default=1 << 30, ge=1 << 16, description="hidden bytes of a part")
    max_samples: PositiveInt = 4096
    commit_every_parts: PositiveInt = 64
    commit_every_seconds: PositiveFloat = 600.0


class WorkerSettings(Section):
    """The fleet: one Ray actor an engine replica."""

    count: PositiveInt | Literal["auto"] = Field(
        default="auto", description="auto: as many as the cluster's GPUs allow, one without GPUs"
    )
    cpus: PositiveFloat = Field(default=1.0, description="CPUs a worker reserves")
    gpus: float = Field(default=0.0, ge=0.0, description="GPUs a worker reserves")
    batch_tokens: PositiveInt = Field(default=4096, description="tokens of a batch, padding included")
    units_in_flight: int = Field(default=2, ge=1, le=8, description="units handed to a worker at a time")
    unit_attempts: int = Field(
        default=3, ge=1, description="deaths before a unit is halved, or a sample alone is given up"
    )
    max_refused: int = Field(
        default=100, ge=0, description="samples refused for content or poison before the run stops"
    )
    start_timeout_seconds: PositiveFloat = 1800.0


class AuditSettings(Section):
    """The companion dataset `<dataset>.audit`: a few short samples with every boundary."""

    samples: int = Field(default=8, ge=0, description="0 makes no audit set")
    max_tokens: PositiveInt = 128


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
    probe_seconds: PositiveFloat = 10.0


class RunConfig(BaseSettings):
    """Everything of a run."""

    model_config = SettingsConfigDict(
        env_prefix="STRATA_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    output: OutputSettings
    prompts: PromptSettings
    engine: EngineSettings
    tensors: TensorSettings
    parts: PartSettings = PartSettings()
    workers: WorkerSettings = WorkerSettings()
    audit: AuditSettings = AuditSettings()
    ray: RaySettings = RaySettings()
    plan: PlanSettings = PlanSettings()


def setting_names(model: type[BaseModel] = RunConfig, prefix: str = "") -> tuple[str, ...]:
    """Return every setting as it is written in a flag, sections included.

    >>> "output.root" in setting_names()
    True
    """
    names: list[str] = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                names += setting_names(inner, f"{prefix}{name}.")
    return tuple(names)


def load_config(flags: Sequence[str], file: Path | None, prog: str) -> RunConfig:
    """Return the configuration of `file`, the environment and `flags` (`["--engine.model", "PATH"]`).

    Raises `ConfigError` with every wrong setting.
    """
    problems = _unknown_flags(flags)
    known = _without(flags, {problem.where for problem in problems})
    content = _toml(file) if file else {}

    class Sourced(RunConfig):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            *_unused: PydanticBaseSettingsSource,
            **_others: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            flag_settings: CliSettingsSource[Any] = CliSettingsSource(
                settings_cls, cli_parse_args=list(known), cli_prog_name=prog, cli_exit_on_error=False
            )
            return flag_settings, env_settings, init_settings

    try:
        config = Sourced(**content)
    except ValidationError as error:
        problems += validation_problems(error)
    except SettingsError as error:
        problems.append(Problem(where="flags", kind="flag", message=str(error)))
    else:
        problems += _contradictions(config)
        if not problems:
            return RunConfig.model_validate(config.model_dump())
    where = f"{file}, environment and flags" if file else "environment and flags"
    raise ConfigError(f"the configuration cannot be used ({where})", problems)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: expected a TOML file, got no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: expected a TOML file, got: {error}") from error


def _unknown_flags(flags: Sequence[str]) -> list[Problem]:
    known = setting_names()
    problems = []
    for flag in flags:
        name = flag.split("=", 1)[0]
        if not name.startswith("--") or name[2:] in known or name == "--help":
            continue
        near = difflib.get_close_matches(name[2:], known, n=1)
        problems.append(
            Problem(
                where=name,
                kind="flag",
                message="expected a setting, got an unknown flag",
                repair=f"did you mean --{near[0]}" if near else "`--help` lists the settings",
            )
        )
    return problems


def _without(flags: Sequence[str], unknown: set[str]) -> list[str]:
    """Return the flags without the unknown ones and their values, so that the rest is checked too."""
    kept: list[str] = []
    dropping = False
    for flag in flags:
        if flag.startswith("--"):
            dropping = flag.split("=", 1)[0] in unknown
        if not dropping:
            kept.append(flag)
    return kept


def _contradictions(config: RunConfig) -> list[Problem]:
    problems = name_problems(config.output.dataset)
    if config.output.dataset.endswith(".audit"):
        problems.append(
            Problem(
                where="output.dataset",
                kind="name",
                message=f"expected a name that does not end in .audit, got {config.output.dataset!r}",
                repair="`<dataset>.audit` is the companion that a run makes itself",
            )
        )
    if config.tensors.dtype != config.engine.dtype:
        problems.append(
            Problem(
                where="tensors.dtype",
                kind="dtype",
                message=f"expected {config.engine.dtype} as engine.dtype, got {config.tensors.dtype}",
                repair="states are kept as they are computed, never cast",
            )
        )
    if (config.plan.samples is None) != (config.plan.tokens_per_sample is None):
        problems.append(
            Problem(
                where="plan", kind="plan", message="expected samples and tokens_per_sample together, got one"
            )
        )
    return problems
