"""The run's configuration: one file, one prefix, read once at the edge and passed down as values.

A setting comes from, in this order: a flag (`--engine.model PATH`), the environment (`STRATA_ENGINE__MODEL`),
the TOML file, the default. Every wrong one is reported at once.
"""

import os
import re
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from datagen.contradictions import contradictions
from datagen.errors import ConfigError
from datagen.flags import Flag, by_setting, misspelt_variables, read_flags
from datagen.readable import readable, wrong_settings
from datagen.run_settings import (
    PartSettings,
    PlanSettings,
    RaySettings,
    RunConfig,
    section_of,
    setting_names,
)
from schemas.problem import Problem
from schemas.record import validation_problems

__all__ = [
    "PartSettings",
    "PlanSettings",
    "RaySettings",
    "RunConfig",
    "load_config",
    "print_settings",
    "setting_names",
]

T = TypeVar("T", bound=tuple[str, str | None])
WRITTEN = "write a list or a mapping as JSON"


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
    values: dict[str, Any] = {}

    class Sourced(RunConfig):
        @model_validator(mode="before")
        @classmethod
        def keep(cls, given: dict[str, Any]) -> dict[str, Any]:
            values.update(given)
            return given

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

    config: RunConfig
    try:
        config = Sourced(**content)
    except ValidationError as error:
        problems += by_setting(_placed(validation_problems(error), names), names)
        config = readable(values)
    problems += contradictions(config, wrong_settings(problems))
    if not problems:
        return RunConfig.model_validate(_sized(config.model_dump()))
    where = f"{file}, environment and flags" if file else "environment and flags, no --config FILE"
    raise ConfigError(f"the configuration cannot be used ({where})", problems)


def _sized(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the length of vLLM's requests that the run's samples need.

    Its default is the model's whole length, for which it takes a cache.
    """
    vllm = values["engine"]["vllm"]
    if values["engine"]["name"] == "vllm" and vllm["max_model_len"] is None:
        vllm["max_model_len"] = values["prompts"]["max_tokens"] + 1
    return values


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
        section = section_of(getattr(RunConfig.model_fields.get(problem.where), "annotation", None))
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
