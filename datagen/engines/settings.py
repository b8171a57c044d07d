"""The settings of an engine, as a run's configuration nests them: pydantic only, no torch.

What decides the states (model, revision, dtype, attention) and where they are computed; how many samples go
into a batch is not an engine's matter.
"""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from datagen.engines.owned_arguments import SGLANG_OWNED, VLLM_OWNED, without_owned
from schemas.schema import DType

EngineName = Literal["hf", "openai", "sglang", "synthetic", "vllm"]
Device = Literal["auto", "cpu", "cuda"]

CHOOSING = frozenset({"openai", "sglang", "vllm"})
"""Engines that place and compute a model as their own settings say."""
LENIENT = {"rules": False}
"""A validation's context in which what an engine needs, or has no use for, is let pass."""


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


class VllmSettings(BaseModel):
    """How a vLLM is started; what its extraction rests on (`VLLM_OWNED`) is the engine's to say."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tensor_parallel: PositiveInt = 1
    """GPUs that one replica's weights are spread over; a worker needs as many."""
    executor: Literal["mp", "ray"] = "mp"
    """Where the ranks of tensor parallel run: processes of the worker's host, or Ray actors of several."""
    max_model_len: PositiveInt | None = None
    """Tokens of a request at most, the one that it says included; unset is that of the samples."""
    max_num_batched_tokens: PositiveInt | None = None
    """Tokens of one forward at most; longer samples go through in pieces. Unset is vLLM's choice."""
    max_num_seqs: PositiveInt | None = None
    """Samples of one forward at most; unset is vLLM's choice."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """The share of a GPU's memory that vLLM takes (of the host's, on the CPU); unset is vLLM's choice."""
    kv_cache_gib: float | None = Field(default=None, gt=0)
    """Memory of the cache, the hidden states of the requests under way included; replaces the share."""
    arguments: Annotated[dict[str, JsonValue], AfterValidator(partial(without_owned, owned=VLLM_OWNED))] = {}
    """More arguments of `vllm.LLM`, by their own names; a dataset's runs must have the same."""


class OpenaiSettings(BaseModel):
    """Where a vLLM server is, the folder that it shares with the run, and how it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base_url: str = Field(default="http://127.0.0.1:8000", pattern=r"^https?://[^/]")
    """Without `/v1`."""
    shared_folder: str | None = None
    """Where the server's files lie as the workers see it."""
    server_folder: str | None = None
    """The same folder as the server sees it (`shared_storage_path`); unset where both see one path."""
    layer_ids: tuple[int, ...] = ()
    """The ids that the server was started with (`eagle_aux_hidden_state_layer_ids`), which HTTP says not."""
    served_model: str | None = None
    """The name that the server gives the model; unset where it serves one only."""
    concurrency: PositiveInt = 16
    """Requests that a worker has under way at most; each may leave a file until it is read."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """How long an answer, and then its file, is waited for."""
    retries: int = Field(default=5, ge=0)
    """Further tries of a request whose connection failed or that the server was too busy for."""
    backoff_seconds: float = Field(default=0.5, ge=0)
    """The first pause before a further try; each is twice the last, to 30 s."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, where the server wants one; never the key itself."""


class SglangSettings(BaseModel):
    """How an SGLang is started; what its capture rests on (`SGLANG_OWNED`) is the engine's to say."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tensor_parallel: PositiveInt = 1
    """GPUs that one replica's weights are spread over; a worker needs as many."""
    context_length: PositiveInt | None = None
    """Tokens of a request at most, the one that it says included; unset is the model's own."""
    mem_fraction_static: float | None = Field(default=None, gt=0, lt=1)
    """The share of a GPU's memory for weights and cache; unset is SGLang's choice."""
    arguments: Annotated[
        dict[str, JsonValue], AfterValidator(partial(without_owned, owned=SGLANG_OWNED))
    ] = {}
    """More arguments of `sglang.Engine`, by their own names; a dataset's runs must have the same."""


class EngineSettings(BaseModel):
    """Which engine, of which model, computing in what and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: EngineName = "hf"
    """`hf` is transformers, `vllm` and `sglang` run inside the worker, `openai` asks a vLLM server over HTTP;
    `synthetic` makes tensors up, for tests."""
    model: str | None = Field(default=None, validate_default=True)
    """A folder with `config.json` and safetensors files, or a hub id; `synthetic` has none."""
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
    vllm: VllmSettings = VllmSettings()
    """How the engine `vllm` starts its vLLM."""
    sglang: SglangSettings = SglangSettings()
    """How the engine `sglang` starts its SGLang."""
    openai: OpenaiSettings = OpenaiSettings()
    """The server that the engine `openai` asks."""

    @field_validator("model")
    @classmethod
    def _a_model_where_one_is_needed(cls, model: str | None, info: ValidationInfo) -> str | None:
        name = _engine_of(info)
        if name is not None and name != "synthetic" and not model:
            raise ValueError(f"expected a folder or a hub id for the engine {name}, got none")
        if name == "synthetic" and model:
            raise ValueError(f"expected none for the engine synthetic, got {model!r}")
        return model

    @field_validator("device", "device_map", "attn_implementation", "threads")
    @classmethod
    def _nothing_that_is_ignored(cls, value: Any, info: ValidationInfo) -> Any:
        name, field = _engine_of(info), cls.model_fields[str(info.field_name)]
        if name in CHOOSING and value != field.default:
            expected = field.default or "none"
            raise ValueError(
                f"expected {expected} for the engine {name}, which chooses itself, got {value!r}"
            )
        on_cpu = info.field_name == "device_map" and info.data.get("device") == "cpu"
        if name is not None and on_cpu and value is not None:
            raise ValueError(f"expected none with device cpu, got {value!r}")
        return value

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """What is handed to the engine's own library beside what is set here."""
        return {"vllm": self.vllm.arguments, "sglang": self.sglang.arguments}.get(self.name, {})


def _engine_of(info: ValidationInfo) -> EngineName | None:
    """Return the engine whose rules hold, `None` where its name is wrong or rules are let be."""
    if info.context == LENIENT:
        return None
    name: EngineName | None = info.data.get("name")
    return name
