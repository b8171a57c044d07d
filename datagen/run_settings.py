"""The run's settings: every section and its defaults, without where their values come from."""

import json
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from datagen.engines.settings import EngineSettings
from datagen.flags import ENV_DELIMITER, ENV_PREFIX
from datagen.placement import WorkerSettings
from datagen.prompts.settings import PromptSettings
from schemas.reference import name_problems


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
    """The companion dataset `<dataset>.audit`: a few short samples, every boundary that the engine gives."""

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
        section = section_of(field.annotation)
        names += [prefix + name] if section is None else setting_names(section, f"{prefix}{name}.")
    return tuple(names)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section of a field, also of one that may be absent."""
    given = [one for one in get_args(annotation) if one is not NoneType]
    if len(given) == 1:
        annotation = given[0]
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
