"""A double of vLLM as the engine `vllm` uses it: the states of a tiny model, taken by transformers.

It stands for `vllm.LLM` and what its connector and `Reach` do; the engine's own code runs as it is. What
stands in the place of vLLM's modules is there while a test needs it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datagen.engines.architecture import read_config
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from schemas.boundary import all_names, name_of
from schemas.schema import Schema

RELEASE = "0.32.0"
LEAST_TEMPERATURE = 0.01
OURS = ("vllm_running", "vllm_reach", "vllm_connector")
_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"


@dataclass
class Told:
    """vLLM's `SamplingParams`, as far as it is asked; it raises a low temperature as vLLM does."""

    temperature: float = 1.0
    max_tokens: int = 16
    extra_args: dict[str, Any] | None = None
    prompt_logprobs: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        if 0 < self.temperature < LEAST_TEMPERATURE:
            self.temperature = LEAST_TEMPERATURE


class Llm:
    """vLLM's `LLM`: requests are run when they are asked, and their states wait for `strata_hand_over`."""

    started: "list[Llm]" = []  # noqa: RUF012
    takes_drafts = "update_draft_token_ids"
    without_ends = ""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        folder, dtype = Path(arguments["model"]), arguments["dtype"]
        settings = EngineSettings(name="hf", model=str(folder), dtype=dtype, device="cpu")
        target = read_target(settings)
        self.engine = open_engine(settings, Schema.declare(target, all_names(target.n_layers), dtype))
        self.head = TargetHead(folder, read_config(folder, trust_remote_code=False), dtype)
        draft = arguments["speculative_config"]["draft_model_config"]["hf_config"]
        self.ids = tuple(draft["eagle_aux_hidden_state_layer_ids"])
        self.width = len(self.ids)
        self.taken: dict[str, tuple[NDArray[np.int32], dict[str, NDArray[Any]]]] = {}
        self.scheduler = SimpleNamespace(**{self.takes_drafts: lambda drafts: drafts})
        core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=self.scheduler), shutdown=self.shutdown)
        self.llm_engine = SimpleNamespace(engine_core=core, step=lambda: None)
        self.ended = False
        self.started.append(self)

    def shutdown(self) -> None:
        self.ended = True
        self.engine.close()

    def generate(self, prompts: Sequence[Any], told: Sequence[Told], use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        return [self._one(prompt["prompt_token_ids"], one) for prompt, one in zip(prompts, told, strict=True)]

    def _one(self, ids: list[int], told: Told) -> Any:
        assert len(ids) < self.arguments["max_model_len"], "vLLM refuses a request of this length"
        (capture,) = self.engine.submit([ids], with_argmax=True).result()
        assert capture.argmax is not None
        n_layers = self.engine.target.n_layers
        asked = (told.extra_args or {}).get("kv_transfer_params")
        if asked is not None:
            arrays = {}
            for name, slot in asked["strata_slots"].items():
                boundary = name_of(self.ids[slot], n_layers)
                arrays[name] = _bits(capture.tensors[boundary])
                arrays[f"norm:{name}"] = capture.norms[boundary]
            self.taken[asked["strata_tag"]] = (capture.token_ids, arrays)
            import_module("datagen.engines.vllm_connector").LEFT.add(asked["strata_tag"])
        said = [int(one) for one in capture.argmax]
        ranked = [None, *({one: SimpleNamespace(logprob=-1.0)} for one in said[:-1])]
        return SimpleNamespace(
            num_cached_tokens=0,
            prompt_logprobs=ranked if told.prompt_logprobs else None,
            outputs=[SimpleNamespace(token_ids=said[-1:])],
        )

    def collective_rpc(self, method: str, args: Sequence[Any] = ()) -> list[Any]:
        return [getattr(self, method)(*args)]

    def strata_capture_layers(self, ids: Sequence[int]) -> None:
        assert len(ids) == self.width
        self.ids = tuple(ids)

    def strata_hand_over(self, tags: Sequence[str], prefix: str | None) -> dict[str, Any]:
        assert prefix is None
        handed = import_module("datagen.engines.vllm_reach").HandedOver
        return {tag: handed(*self.taken.pop(tag)) for tag in tags}

    def strata_choose(self, rows: bytes) -> bytes:
        states = self._states(rows)
        chosen = np.stack([self.head.choose(states), self.head.ties(states).astype(np.int32)], axis=1)
        return chosen.astype(np.int32).tobytes()

    def strata_norm(self, rows: bytes) -> bytes:
        return self._raw(self.head.norm(self._states(rows)))

    def strata_embed(self, token_ids: bytes) -> bytes:
        return self._raw(self.head.embed(np.frombuffer(token_ids, np.int32)))

    def strata_facts(self) -> dict[str, str]:
        return {"class": "Double", "device": "cpu", "ends": self.without_ends}

    def _states(self, rows: bytes) -> torch.Tensor:
        dtype = self.head.embedding.dtype
        return torch.frombuffer(bytearray(rows), dtype=dtype).reshape(-1, self.engine.target.hidden_size)

    def _raw(self, rows: torch.Tensor) -> bytes:
        return rows.contiguous().view(torch.uint8).numpy().tobytes()


@contextmanager
def standing_in(monkeypatch: Any) -> Iterator[type[Llm]]:
    """Put the double in vLLM's place; what was imported of ours on top of it goes with it."""

    def module(name: str, **content: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, made)

    for name in ("vllm.distributed", "vllm.distributed.kv_transfer", _V1.rpartition(".")[0], _V1):
        module(name)
    module("vllm", LLM=Llm, SamplingParams=Told)
    module("vllm.distributed.parallel_state", cleanup_dist_env_and_memory=lambda: None)
    module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: True))
    module(f"{_V1}.base", KVConnectorMetadata=object)
    module(f"{_V1}.example_hidden_states_connector", ExampleHiddenStatesConnector=object)
    versions = {"vllm": RELEASE, "torch": torch.__version__}
    monkeypatch.setattr("datagen.engines.vllm_inside.version", versions.__getitem__)
    Llm.started.clear()
    try:
        yield Llm
    finally:
        for name in OURS:
            sys.modules.pop(f"datagen.engines.{name}", None)


def _bits(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.view(np.dtype(f"u{rows.itemsize}")) if rows.dtype.name == "bfloat16" else rows
