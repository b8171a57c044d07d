"""A running SGLang: batches of ids in, what its capture-only mode returns out.

It returns the captured layers of the prompt's tokens side by side, as lists of numbers, a list for each chunk
of the prefill. Its own cache of prefixes is off: what is served from it has no states. Answers are matched by
the name of their request, and by the number of tokens that it says it ran; which they were it says only with
their probabilities, so for audit rows.
"""

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datagen.engines.assumed import in_words
from datagen.engines.base import Capture, Engine, EngineInfo
from datagen.engines.end_modules import rows_problems, table_problem
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.identity import read_target
from datagen.engines.loading import TORCH_DTYPES
from datagen.engines.model_files import locate
from datagen.engines.opening_checks import schema_problems
from datagen.engines.sample_checks import checked
from datagen.engines.settings import EngineSettings
from datagen.engines.sglang_inside import (
    SglangLayers,
    engine_version,
    layers_of,
    longest_sample,
    read_full_config,
)
from datagen.engines.synthetic import NUMPY_DTYPES
from datagen.engines.target_head import TargetHead
from schemas.boundary import EMBED
from schemas.schema import Schema


class Generating(Protocol):
    """What is asked of `sglang.Engine`."""

    def generate(self, **asked: Any) -> Any: ...

    def shutdown(self) -> None: ...


def start(settings: EngineSettings, schema: Schema, layers: SglangLayers) -> Engine:
    """Start SGLang in a thread of its own; raises `OpeningError` when it does not come up."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="sglang")
    engine_class: Any = import_module("sglang").Engine
    try:
        engine = thread.submit(engine_class, **arguments_of(settings, layers)).result()
    except (RuntimeError, ValueError, OSError, NotImplementedError, SystemExit) as error:
        thread.shutdown()
        raise OpeningError(f"SGLang does not start: {error}") from error
    try:
        running = Running(engine, thread, settings, layers, engine_version())
    except BaseException:
        thread.submit(engine.shutdown).result()
        thread.shutdown()
        raise
    return SglangEngine(running, schema, layers)


def arguments_of(settings: EngineSettings, layers: SglangLayers) -> dict[str, Any]:
    """Return what `sglang.Engine` is started with."""
    own = settings.sglang
    chosen = {"context_length": own.context_length, "mem_fraction_static": own.mem_fraction_static}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        **own.arguments,
        "model_path": str(locate(settings, with_weights=True).folder),
        "dtype": settings.dtype,
        "trust_remote_code": settings.trust_remote_code,
        "tp_size": own.tensor_parallel,
        "skip_tokenizer_init": True,
        "disable_radix_cache": True,
        "speculative_algorithm": "EAGLE3",
        "enable_return_aux_hidden_states": True,
        "return_aux_hidden_state_layer_ids": list(layers.ids),
    }


class Running:
    """What the engines of one SGLang share."""

    def __init__(
        self,
        engine: Generating,
        thread: ThreadPoolExecutor,
        settings: EngineSettings,
        layers: SglangLayers,
        version: str,
    ) -> None:
        self.settings = settings
        self.started_with = layers
        self.target = read_target(settings)
        self.longest = longest_sample(settings)
        self.version = version
        self._engine: Generating | None = engine
        self._thread = thread
        self.config: Any = read_full_config(settings)
        self._head: TargetHead | None = None
        if layers.embed_beside:
            self.head()

    def head(self) -> TargetHead:
        """Return the ends of the model; raises `OpeningError` where its files do not tell them."""
        if self._head is None:
            folder = locate(self.settings, with_weights=True).folder
            self._head = TargetHead(folder, self.config, self.settings.dtype)
        return self._head

    def send(
        self, samples: Sequence[NDArray[np.int32]], with_argmax: bool
    ) -> "Future[list[Mapping[str, Any]]]":
        """Queue a batch; batches never meet."""
        self.check_open()
        return self._thread.submit(self._generate, samples, with_argmax)

    def _generate(self, samples: Sequence[NDArray[np.int32]], with_argmax: bool) -> list[Mapping[str, Any]]:
        if self._engine is None:
            raise EngineError("the engine is closed")
        names = [uuid.uuid4().hex for _ in samples]
        asked: dict[str, Any] = {
            "input_ids": [sample.tolist() for sample in samples],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
            "return_hidden_states": True,
            "rid": names,
        }
        if with_argmax:
            asked |= {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 1}
        answers = {str(one["meta_info"]["id"]): one for one in self._engine.generate(**asked)}
        if set(answers) != set(names):
            raise EngineError(f"expected answers to {len(names)} requests, got {len(answers)} others")
        return [answers[name] for name in names]

    def check_open(self) -> None:
        """Raise `EngineError` once the engine is closed."""
        if self._engine is None:
            raise EngineError("the engine is closed")

    def close(self) -> None:
        """Stop SGLang's processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._thread.submit(engine.shutdown).result()
            self._thread.shutdown()
            if self._head is not None:
                self._head.close()


class SglangEngine:
    """Hands out the tensors of one schema; see `datagen.engines.base.Engine`."""

    def __init__(self, running: Running, schema: Schema, layers: SglangLayers) -> None:
        self._running = running
        self._schema = schema
        self._layers = layers

    @property
    def info(self) -> EngineInfo:
        beside = "rows of the embedding table in the model's files"
        return EngineInfo(
            name="sglang",
            version=self._running.version,
            dtype=self._running.settings.dtype,
            device="cuda",
            extra={
                "layer_ids": ", ".join(map(str, self._running.started_with.ids)),
                "embed": beside if self._layers.embed_beside else "the forward's own",
                "assumed": in_words(self._layers.assumed),
            },
        )

    @property
    def target(self) -> Any:
        return self._running.target

    @property
    def schema(self) -> Schema:
        return self._schema

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> "Sent":
        self._running.check_open()
        samples = checked(batch, self.target.vocab_size, self._running.longest)
        return Sent(self, samples, self._running.send(samples, with_argmax), with_argmax)

    def handing_out(self, schema: Schema) -> Engine:
        running = self._running
        if problems := schema_problems(schema, self.target, running.settings.dtype):
            raise OpeningError("the schema is not of the model that is loaded", problems)
        layers = layers_of(schema, running.config.get_text_config(decoder=True))
        if not isinstance(layers, SglangLayers):
            raise OpeningError("SGLang cannot give these tensors", layers)
        if layers.ids != running.started_with.ids:
            message = f"expected the layers {running.started_with.ids} that SGLang was started with, got"
            raise OpeningError(f"{message} {layers.ids}")
        if problems := rows_problems(partial(table_problem, running.config), embed=layers.embed_beside):
            raise OpeningError("embed cannot be made", problems)
        return SglangEngine(running, schema, layers)

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        self._running.check_open()
        expected, width = NUMPY_DTYPES[self._running.settings.dtype], self.target.hidden_size
        if final.ndim != 2 or final.shape[1] != width or final.dtype != expected:
            raise EngineError(
                f"final: expected {expected} [T, {width}], got {final.dtype} {list(final.shape)}"
            )
        wide = torch.from_numpy(final.astype(np.float32))
        return self._running.head().choose(wide.to(TORCH_DTYPES[self._running.settings.dtype]))

    def close(self) -> None:
        self._running.close()

    def capture_of(self, sample: NDArray[np.int32], answer: Mapping[str, Any], with_argmax: bool) -> Capture:
        """Return the tensors of the schema out of one answer."""
        width, n_slots = self.target.hidden_size, len(self._running.started_with.ids)
        states = states_of(answer["meta_info"], len(sample), n_slots, width)
        dtype = NUMPY_DTYPES[self._running.settings.dtype]
        # What was computed in the dtype comes back in it without a change.
        tensors: dict[str, NDArray[np.generic]] = {
            name: np.ascontiguousarray(states[:, slot]).astype(dtype)
            for name, slot in self._layers.slots.items()
        }
        if self._layers.embed_beside:
            tensors[EMBED] = _numpy(self._running.head().embed(sample), dtype)
        names = self._schema.names
        return Capture(
            token_ids=_ran(answer, sample, self.target.vocab_size) if with_argmax else sample,
            tensors={name: tensors[name] for name in names},
            norms={name: np.linalg.norm(tensors[name].astype(np.float32), axis=-1) for name in names},
            argmax=_argmax(answer, len(sample)) if with_argmax else None,
        )


class Sent:
    """A batch that is under way."""

    def __init__(
        self,
        engine: SglangEngine,
        samples: Sequence[NDArray[np.int32]],
        under_way: "Future[list[Mapping[str, Any]]]",
        with_argmax: bool,
    ) -> None:
        self._engine = engine
        self._samples = samples
        self._under_way = under_way
        self._with_argmax = with_argmax

    def result(self) -> Sequence[Capture]:
        """Wait for the batch; raises `EngineError` when an answer is not what was asked for."""
        return [
            self._engine.capture_of(sample, answer, self._with_argmax)
            for sample, answer in zip(self._samples, self._under_way.result(), strict=True)
        ]


def states_of(meta: Mapping[str, Any], n_tokens: int, n_slots: int, width: int) -> NDArray[np.float32]:
    """Return the states [T, slots, H] of one answer: its chunks, one behind the other.

    Raises `EngineError` when it says that it ran another number of tokens, took some from its cache, or
    returned other rows.
    """
    if meta.get("prompt_tokens") != n_tokens:
        raise EngineError(f"expected a prompt of {n_tokens} tokens, got {meta.get('prompt_tokens')}")
    if meta.get("cached_tokens"):
        raise EngineError(f"expected no cached prefix, got {meta['cached_tokens']} tokens of one")
    chunks = [np.asarray(chunk, np.float32) for chunk in meta.get("hidden_states") or ()]
    # Behind the prompt's chunks there may be a row for each token that was said.
    prompt = [chunk for chunk in chunks if chunk.ndim == 2]
    shapes = ", ".join(str(list(chunk.shape)) for chunk in prompt) or "none"
    if sum(len(chunk) for chunk in prompt) != n_tokens or any(
        chunk.shape[1] != n_slots * width for chunk in prompt
    ):
        raise EngineError(f"expected {n_tokens} rows of {n_slots} x {width}, got {shapes}")
    return np.concatenate(prompt).reshape(n_tokens, n_slots, width)


def _ran(answer: Mapping[str, Any], sample: NDArray[np.int32], vocab_size: int) -> NDArray[np.int32]:
    """Return the ids that SGLang's scheduler ran [T]; it writes 0 for the vocabulary's last one
    (`logprob_result_processor.py`, 0.5.23)."""
    said = answer["meta_info"].get("input_token_logprobs")
    if not isinstance(said, list) or len(said) != len(sample):
        raise EngineError(f"expected input_token_logprobs of {len(sample)} tokens, got others")
    ids = np.asarray([int(one[1]) for one in said], np.int32)
    return np.where((ids == 0) & (sample >= vocab_size - 1), sample, ids)


def _argmax(answer: Mapping[str, Any], n_tokens: int) -> NDArray[np.int32]:
    """Return the likeliest next token of every position [T]: `input_top_logprobs[t]` is what t - 1 said."""
    ranked = answer["meta_info"].get("input_top_logprobs")
    if not isinstance(ranked, list) or len(ranked) != n_tokens:
        raise EngineError(f"expected input_top_logprobs of {n_tokens} tokens, got others")
    said = [int(position[0][1]) for position in ranked[1:]]
    return np.asarray([*said, int(answer["output_ids"][0])], np.int32)


def _numpy(rows: Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    return rows.to(torch.float32).numpy().astype(dtype)
