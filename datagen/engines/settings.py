"""The settings of an engine, as a run's configuration nests them: pydantic only, no torch.

What decides the states (model, revision, dtype, attention) and where they are computed; how many samples go
into a batch is not an engine's matter.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from schemas.schema import DType

EngineName = Literal["hf", "synthetic"]
Device = Literal["auto", "cpu", "cuda"]


class SyntheticSettings(BaseModel):
    """The shape of the model that the synthetic engine stands for, and the seed of its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    n_layers: PositiveInt = 30
    """L, decoder layers."""
    hidden_size: PositiveInt = 576
    """H, the width of the residual stream."""
    vocab_size: PositiveInt = Field(default=49152, le=2**31 - 1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    model_type: str = "synthetic"


class EngineSettings(BaseModel):
    """Which engine, of which model, computing in what and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: EngineName = "hf"
    """`hf` runs the model in transformers; `synthetic` makes tensors up, for tests and load."""
    model: str | None = None
    """A folder with `config.json` and safetensors files, or a hub id; only `hf` has one."""
    revision: str | None = None
    """A branch, tag or commit of a hub id; a folder has none."""
    dtype: DType = "bfloat16"
    """What the model computes in, and so the dtype of every tensor: nothing is cast."""
    device: Device = "auto"
    """`auto` is cuda where there is a CUDA device, else cpu."""
    device_map: str | None = None
    """How accelerate spreads the layers over GPUs (`auto`, `balanced`, `sequential`); replaces `device`."""
    attn_implementation: str | None = None
    """transformers' name of an attention (`sdpa`, `eager`, `flash_attention_2`); unset is its own choice."""
    trust_remote_code: bool = False
    """Run the Python files in the model's folder; needed by models that transformers does not have."""
    threads: PositiveInt | None = None
    """Threads of torch on the CPU; unset is torch's own choice."""
    synthetic: SyntheticSettings = SyntheticSettings()
    """The model that the engine `synthetic` stands for."""

    @model_validator(mode="after")
    def _a_model_where_one_is_needed(self) -> Self:
        if self.name == "hf" and not self.model:
            raise ValueError("model: expected a folder or a hub id for the engine hf, got none")
        if self.name == "synthetic" and self.model:
            raise ValueError(f"model: expected none for the engine synthetic, got {self.model!r}")
        if self.device_map is not None and self.device == "cpu":
            raise ValueError("device_map: expected none with device cpu, got " + repr(self.device_map))
        return self
