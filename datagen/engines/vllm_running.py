"""A running vLLM: batches in, the states that its connector took out, and the target's own answers.

vLLM lives in one thread of its own, in which it is also made: a worker writes one batch while the next is
under way, and calls never meet. It has no process of its own but for tensor parallel, whose rank 0 hands the
states over in shared memory.

Prefix caching is off, and a request that was served from a cache is an error. States are found by the tag
that their request came with, and the ids that the scheduler ran are compared with those that were asked for.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from vllm import LLM, SamplingParams
from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
from vllm.platforms import current_platform

from datagen.engines.assumed import in_words
from datagen.engines.base import Answer, Capture, Engine, EngineInfo
from datagen.engines.decoding import StopTexts
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.identity import read_target
from datagen.engines.opening_checks import schema_problems
from datagen.engines.owned_names import new_name
from datagen.engines.sample_checks import checked, checked_prompts
from datagen.engines.sampling import Sampling
from datagen.engines.settings import EngineSettings
from datagen.engines.shared_rows import Segment, drop, sweep, sweep_the_dead, take_up
from datagen.engines.vllm_arguments import arguments_of
from datagen.engines.vllm_connector import LEFT, NORM, SLOTS, TAG
from datagen.engines.vllm_drafts import take_no_drafts
from datagen.engines.vllm_inside import engine_version, layers_for, longest_sample, text_config
from datagen.engines.vllm_layers import Layers, passes, rotation_problem
from datagen.engines.vllm_outputs import LIKELIEST, answer_of, own_choice, text_of
from datagen.engines.vllm_reach import HandedOver
from schemas.boundary import EMBED, FINAL, FINAL_NORMED, all_names
from schemas.schema import DType, Schema
from schemas.target import Target

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
}
IDLE_STEPS = 64
"""Steps without a forward in which the last states of a batch must have left the cache."""
ENVIRONMENT = {
    # The engine's core steps in this thread; only what a tensor-parallel rank needs is a process.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The runner whose numbering of layers was compared with transformers.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
_TAGS = count()


def start(settings: EngineSettings, schema: Schema, layers: Layers, release: str) -> "VllmEngine":
    """Start vLLM in a thread of its own.

    Raises `OpeningError` when it does not come up.
    """
    if current_platform.is_cpu() and (problem := rotation_problem(text_config(settings))) is not None:
        raise OpeningError("this vLLM computes the model wrongly", [problem])
    thread = ThreadPoolExecutor(1, thread_name_prefix="vllm")
    try:
        running = thread.submit(Running, settings, layers, release).result()
    except (RuntimeError, ValueError, OSError, NotImplementedError) as error:
        thread.shutdown()
        raise OpeningError(f"vLLM {release} does not start: {error}") from error
    except OpeningError:
        thread.shutdown()
        raise
    return VllmEngine(running, thread, schema, layers)


class Running:
    """The vLLM itself; but for its facts, everything here is called in its thread."""

    def __init__(self, settings: EngineSettings, layers: Layers, release: str) -> None:
        os.environ.update(ENVIRONMENT)
        self.settings = settings
        self.target: Target = read_target(settings)
        self.longest = longest_sample(settings)
        self.every = _every_layer(settings, self.target) or layers
        self.captured = layers.ids
        self.prefix = None if settings.vllm.tensor_parallel == 1 else new_name()
        if self.prefix is not None:
            sweep_the_dead()
        self.llm: Any = LLM(**arguments_of(settings, layers, self.longest))
        try:
            take_no_drafts(self.llm, release)
            facts: dict[str, str] = self.asked("strata_facts")
            self.without_ends = facts["ends"]
            self.info = self._info(release, facts)
            self.check_ends(layers)
        except BaseException:
            self.close()
            raise

    @property
    def width(self) -> int:
        """How many layers vLLM's buffers hold: those that it was started with."""
        return len(self.captured)

    def check_ends(self, layers: Layers) -> None:
        """Raise `OpeningError` where `layers` needs a norm or an embedding that the model shows none of."""
        if self.without_ends and (layers.normed or layers.embed_beside):
            raise OpeningError(f"vLLM does not show the ends of the model: {self.without_ends}")

    def asked(self, method: str, *arguments: Any) -> Any:
        """Call `Reach` on every rank and return what rank 0 says."""
        return self._llm().collective_rpc(method, args=arguments)[0]

    def capture(
        self, samples: Sequence[NDArray[np.int32]], layers: Layers, names: Sequence[str], with_argmax: bool
    ) -> list[Capture]:
        """Return the states of each sample, in as many passes as its layers need."""
        found: list[dict[str, NDArray[Any]]] = [{} for _ in samples]
        argmax: list[NDArray[np.int32] | None] = [None] * len(samples)
        for turn, (ids, slots) in enumerate(passes(layers, self.width, self.every.ids)):
            asking = with_argmax and turn == 0
            for index, (arrays, chosen) in enumerate(self._pass(samples, ids, slots, asking)):
                found[index].update(arrays)
                argmax[index] = chosen if asking else argmax[index]
        self._beside(samples, layers, found)
        return [
            Capture(
                token_ids=ids,
                tensors={name: arrays[name] for name in names},
                norms={name: arrays[f"{NORM}{name}"] for name in names},
                argmax=chosen,
            )
            for ids, arrays, chosen in zip(samples, found, argmax, strict=True)
        ]

    def _pass(
        self,
        samples: Sequence[NDArray[np.int32]],
        ids: tuple[int, ...],
        slots: dict[str, int],
        with_argmax: bool,
    ) -> list[tuple[dict[str, NDArray[Any]], NDArray[np.int32] | None]]:
        if ids != self.captured:
            self.asked("strata_capture_layers", ids)
            self.captured = ids
        tags = [str(next(_TAGS)) for _ in samples]
        told = [
            SamplingParams(
                temperature=0.0,
                max_tokens=1,
                detokenize=False,
                ignore_eos=True,
                prompt_logprobs=LIKELIEST if with_argmax else None,
                extra_args={"kv_transfer_params": {TAG: tag, SLOTS: slots}},
            )
            for tag in tags
        ]
        outputs = self._said(samples, told)
        self._wait_for(tags)
        handed: dict[str, HandedOver] = self.asked("strata_hand_over", tags, self.prefix)
        made = []
        try:
            for sample, tag, output in zip(samples, tags, outputs, strict=True):
                if output.num_cached_tokens:
                    got = f"got {output.num_cached_tokens} tokens of one"
                    raise EngineError(f"expected no cached prefix, {got}")
                arrays = self._taken(sample, handed[tag])
                made.append((arrays, own_choice(output) if with_argmax else None))
        finally:
            drop(one.arrays for one in handed.values() if isinstance(one.arrays, Segment))
        return made

    def _taken(self, sample: NDArray[np.int32], handed: HandedOver) -> dict[str, NDArray[Any]]:
        """Return one request's arrays, once they are known to be those of these ids."""
        if not np.array_equal(handed.token_ids, sample):
            got = f"got the states of {len(handed.token_ids)} others"
            raise EngineError(f"expected the states of the {len(sample)} ids that were asked for, {got}")
        arrays = take_up(handed.arrays) if isinstance(handed.arrays, Segment) else handed.arrays
        dtype = NUMPY_DTYPES[self.settings.dtype]
        return {name: array if name.startswith(NORM) else array.view(dtype) for name, array in arrays.items()}

    def _said(self, prompts: Sequence[NDArray[np.int32]], told: list[Any]) -> list[Any]:
        asked = [{"prompt_token_ids": ids.tolist()} for ids in prompts]
        outputs: list[Any] = self._llm().generate(asked, told, use_tqdm=False)
        return outputs

    def _wait_for(self, tags: Sequence[str]) -> None:
        """Step until the states of these requests have left the cache, which a step after their last does."""
        engine = self._llm().llm_engine
        for _ in range(IDLE_STEPS):
            if LEFT.issuperset(tags):
                LEFT.difference_update(tags)
                return
            engine.step()
        raise EngineError(f"expected the states of {len(tags)} requests, got {len(LEFT & set(tags))}")

    def _beside(
        self, samples: Sequence[NDArray[np.int32]], layers: Layers, found: list[dict[str, NDArray[Any]]]
    ) -> None:
        """Add what no layer of the forward gives."""
        if layers.embed_beside:
            for ids, arrays in zip(samples, found, strict=True):
                self._add(arrays, EMBED, self.asked("strata_embed", ids.tobytes()))
        if layers.normed:
            for arrays in found:
                self._add(arrays, FINAL_NORMED, self.asked("strata_norm", _raw(arrays[FINAL])))

    def _add(self, arrays: dict[str, NDArray[Any]], name: str, rows: bytes) -> None:
        made = np.frombuffer(rows, NUMPY_DTYPES[self.settings.dtype]).reshape(-1, self.target.hidden_size)
        arrays[name] = made
        arrays[f"{NORM}{name}"] = np.linalg.norm(made.astype(np.float32), axis=-1)

    def answers(
        self, prompts: Sequence[NDArray[np.int32]], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Answer]:
        """Return the target's answer to each prompt; stop texts are looked for as the engine hf does."""
        tokenizer = self._llm().get_tokenizer() if sampling.stop else None
        stops = StopTexts(sampling.stop, text_of(tokenizer) if tokenizer is not None else None, 0)
        told = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=seed if sampling.temperature > 0 else None,
                max_tokens=sampling.room(len(ids)),
                stop=list(sampling.stop) or None,
                stop_token_ids=list(sampling.stop_token_ids),
                ignore_eos=True,
                detokenize=bool(sampling.stop),
                skip_special_tokens=False,
                include_stop_str_in_output=True,
            )
            for ids, seed in zip(prompts, seeds, strict=True)
        ]
        if other := sorted({one.temperature for one in told} - {sampling.temperature}):
            raise EngineError(f"expected vLLM to take the temperature {sampling.temperature}, got {other[0]}")
        endings = frozenset(sampling.stop_token_ids)
        return [
            answer_of(list(output.outputs[0].token_ids), one.max_tokens, endings, stops)
            for output, one in zip(self._said(prompts, told), told, strict=True)
        ]

    def _llm(self) -> Any:
        if self.llm is None:
            raise EngineError("the engine is closed")
        return self.llm

    def _info(self, release: str, facts: dict[str, str]) -> EngineInfo:
        return EngineInfo(
            name="vllm",
            version=engine_version(),
            dtype=self.settings.dtype,
            device=facts["device"],
            extra={
                "class": facts["class"],
                "runner": "V1",
                "tensor_parallel": str(self.settings.vllm.tensor_parallel),
                "embed": "the embedding layer, beside the forward"
                if self.every.embed_beside
                else "the forward",
                "argmax": "the engine's own top-1 of every position (prompt_logprobs)",
                "longest_sample": str(self.longest),
                "release": release,
                "assumed": in_words(self.every.assumed),
            },
        )

    def close(self) -> None:
        """End vLLM, with its memory and its processes."""
        if self.llm is None:
            return
        llm, self.llm = self.llm, None
        try:
            llm.llm_engine.engine_core.shutdown()
            cleanup_dist_env_and_memory()
        finally:
            if self.prefix is not None:
                sweep(self.prefix)


class VllmEngine:
    """An engine of vLLM; `submit` returns at once, and batches are made one after the other."""

    def __init__(self, running: Running, thread: ThreadPoolExecutor, schema: Schema, layers: Layers) -> None:
        self._running = running
        self._thread = thread
        self._schema = schema
        self._layers = layers

    @property
    def info(self) -> EngineInfo:
        return self._running.info

    @property
    def target(self) -> Target:
        return self._running.target

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def settings(self) -> EngineSettings:
        """What it was opened with."""
        return self._running.settings

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> "PendingCaptures":
        self._check_open()
        samples = checked(batch, self.target.vocab_size, self._running.longest)
        return PendingCaptures(
            self._thread.submit(self._running.capture, samples, self._layers, self._schema.names, with_argmax)
        )

    def handing_out(self, schema: Schema) -> Engine:
        problems = schema_problems(schema, self.target, self.settings.dtype)
        if problems:
            raise OpeningError("the schema is not of the model that is loaded", problems)
        layers = layers_for(self.settings, schema)
        if not isinstance(layers, Layers):
            raise OpeningError("vLLM cannot give these tensors", layers)
        self._running.check_ends(layers)
        return VllmEngine(self._running, self._thread, schema, layers)

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        return self._chosen(final)[:, 0]

    def head_ties(self, final: NDArray[np.generic]) -> NDArray[np.bool_]:
        return self._chosen(final)[:, 1].astype(np.bool_)

    def _chosen(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        """Return [T, 2]: the head's choice of each row, and whether another is as good but for a rounding."""
        self._check_open()
        dtype, width = NUMPY_DTYPES[self.settings.dtype], self.target.hidden_size
        if final.dtype != dtype or final.ndim != 2 or final.shape[1] != width:
            raise EngineError(f"final: expected {dtype} [T, {width}], got {final.dtype} {final.shape}")
        if self._running.without_ends:
            raise EngineError(f"the head cannot be asked: {self._running.without_ends}")
        rows = _raw(np.ascontiguousarray(final))
        chosen: bytes = self._thread.submit(self._running.asked, "strata_choose", rows).result()
        return np.frombuffer(chosen, np.int32).reshape(-1, 2)

    def answer(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
    ) -> Sequence[Answer]:
        self._check_open()
        ids = checked_prompts(prompts, self.target.vocab_size, sampling)
        return self._thread.submit(self._running.answers, ids, sampling, seeds).result()

    @property
    def closed(self) -> bool:
        """Whether its vLLM has ended."""
        return self._running.llm is None

    def close(self) -> None:
        if not self.closed:
            self._thread.submit(self._running.close).result()
            self._thread.shutdown()

    def _check_open(self) -> None:
        if self.closed:
            raise EngineError("the engine is closed")


class PendingCaptures:
    """A batch in vLLM's thread."""

    def __init__(self, future: Future[list[Capture]]) -> None:
        self._future = future

    def result(self) -> Sequence[Capture]:
        """Wait for the states."""
        return self._future.result()


def _every_layer(settings: EngineSettings, target: Target) -> Layers | None:
    """Return all that this vLLM gives of the model, `None` where that is not every boundary."""
    every = Schema.declare(target, all_names(target.n_layers), settings.dtype)
    layers = layers_for(settings, every)
    return layers if isinstance(layers, Layers) else None


def _raw(rows: NDArray[Any]) -> bytes:
    return rows.view(np.dtype(f"u{rows.itemsize}")).tobytes()
