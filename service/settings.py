"""The service's settings: read once at the edge, and passed down as a value.

A setting comes from, in this order: a flag (`--max-response-bytes`), the environment
(`STRATA_SERVE_MAX_RESPONSE_BYTES`), the TOML file (`max_response_bytes`), the default. Every wrong one is
reported at once.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
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
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from schemas.problem import Problem
from schemas.record import validation_problems
from schemas.reference import name_problems
from service.access.caller import Scope
from service.access.origin import is_loopback
from service.errors import SettingsError

ENV_PREFIX = "STRATA_SERVE_"
LogLevel = Literal["debug", "info", "warning", "error"]


def _listed(value: object) -> object:
    """Return a list that was written as text, with commas or as JSON.

    >>> _listed("demo, other"), _listed('["demo"]')
    (['demo', 'other'], ['demo'])
    """
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"expected names with commas between, or a JSON list, got {value!r}") from error
    return [name.strip() for name in value.split(",")]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]


class Settings(BaseModel):
    """Everything that can be set of a service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field(min_length=1, description="a folder, or s3://, gs://, az://")
    host: str = Field(default="127.0.0.1", description="the address to listen at")
    port: int = Field(default=8350, ge=0, le=65535, description="0: any that is free")
    workers: PositiveInt = Field(default=1, le=256, description="processes")
    datasets: Names | None = Field(
        default=None, description="serve only these; needed in a bucket, which nobody lists"
    )
    keys: Path | None = Field(default=None, description="the file of API keys: every caller then needs one")
    anonymous: Scope | None = Field(
        default=None, description="what a caller without a key may do; empty: on loopback everything"
    )
    max_response_bytes: PositiveInt = Field(default=2 << 30, description="of one response")
    max_request_bytes: PositiveInt = Field(default=4 << 20, description="of one request's body")
    max_bytes_in_flight: PositiveInt = Field(default=256 << 20, description="of buffers, in one process")
    max_batch_samples: PositiveInt = Field(default=4096, description="of one response")
    requests_per_second: PositiveFloat | None = Field(default=None, description="a key; empty: no limit")
    bytes_per_second: PositiveFloat | None = Field(default=None, description="a key; empty: no limit")
    locations: Literal["auto", "on", "off"] = Field(
        default="auto", description="tell where bytes lie; auto: paths only on loopback"
    )
    presign_seconds: PositiveInt = Field(
        default=900, le=7 * 86400, description="how long a presigned URL holds"
    )
    log_level: LogLevel = Field(default="info", description="of the log on standard error")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def is_bucket(self) -> bool:
        """Whether the root is a bucket."""
        return "://" in self.root and not self.root.lower().startswith("file://")


def load_settings(
    flags: Mapping[str, str], file: Path | None, environment: Mapping[str, str], strays: Sequence[str] = ()
) -> Settings:
    """Return the settings of `flags` (by their names here), `environment` and `file`.

    Raises `SettingsError` with every problem, `strays` (words that are no flags) among them.
    """
    variables = {
        name.removeprefix(ENV_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENV_PREFIX)
    }
    problems = [_stray(word) for word in strays]
    problems += [_unknown_variable(name) for name in sorted(variables) if name not in Settings.model_fields]
    known = {name: value for name, value in variables.items() if name in Settings.model_fields and value}
    content = {} if file is None else _toml(file)

    class Sourced(Settings, BaseSettings):
        model_config = SettingsConfigDict(frozen=True, extra="forbid")

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            *_unused: PydanticBaseSettingsSource,
            **_others: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            below = (InitSettingsSource(settings_cls, values) for values in (known, content))
            return init_settings, *below

    values: dict[str, Any] = dict(flags)
    try:
        settings = Settings(**Sourced(**values).model_dump())
    except ValidationError as error:
        problems += _by_setting(validation_problems(error))
    else:
        problems += contradictions(settings)
        if not problems:
            return settings
    raise SettingsError("the service cannot be started", problems)


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what cannot be served, or not so that it is safe."""
    for name in settings.datasets or ():
        for problem in name_problems(name):
            yield problem.model_copy(update={"where": "datasets"})
    if settings.is_bucket and settings.datasets is None:
        yield Problem(
            where="datasets",
            kind="missing",
            message=f"expected the datasets in {settings.root} by name, got none: a bucket is not listed",
            repair="name them with --datasets a,b",
        )
    folder = settings.root.removeprefix("file://")
    if not settings.is_bucket and not Path(folder).is_dir():
        yield Problem(
            where="root",
            kind="root",
            message=f"expected a folder that holds datasets, got no folder {folder!r}",
            repair="give the folder above the dataset's own: ROOT of ROOT/DATASET",
        )
    if not settings.is_loopback and settings.keys is None and settings.anonymous is None:
        yield Problem(
            where="host",
            kind="open",
            message=f"expected 127.0.0.1 or a service that asks for keys, got {settings.host!r} for all",
            repair="give --keys FILE (`strata keys` makes one), or say with --anonymous read what a caller "
            "without a key may do",
        )


def _by_setting(problems: tuple[Problem, ...]) -> list[Problem]:
    """Return a problem a setting: one of several types is refused once for each of them."""
    found: dict[str, Problem] = {}
    for problem in problems:
        name = problem.where.partition(".")[0]
        if name not in Settings.model_fields:
            repair = _near(name, Settings.model_fields)
            found[name] = problem.model_copy(update={"repair": repair})
        else:
            found.setdefault(name, problem.model_copy(update={"where": name}))
    return list(found.values())


def _stray(word: str) -> Problem:
    flags = [f"--{name.replace('_', '-')}" for name in Settings.model_fields]
    return Problem(
        where=word, kind="flag", message="expected a setting, got an unknown word", repair=_near(word, flags)
    )


def _unknown_variable(name: str) -> Problem:
    variable = ENV_PREFIX + name.upper()
    near = _near(variable, [ENV_PREFIX + field.upper() for field in Settings.model_fields])
    message = "expected a setting, got an unknown variable"
    return Problem(where=variable, kind="variable", message=message, repair=near)


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}" if near else "`strata serve --help` lists the settings"


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        got = (error.strerror or str(error)).lower()
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        got = re.sub(r"\s+", " ", str(error))
    problem = Problem(where=str(file), kind="file", message=f"expected a TOML file, got: {got}")
    raise SettingsError("the settings cannot be read", [problem])
