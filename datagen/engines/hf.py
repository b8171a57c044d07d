"""The transformers engine: any causal model, captured with hooks on just the declared boundaries.

A batch runs through the body without lm_head, cache or attention mask. Each hook drops the padding on the
device at once; norms are reduced there in float32; host copies run on a side stream. A row whose norm
overflows float32 (above 1.8e19 a value) has the norm Inf, as one that holds Inf.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from datagen.adapters.tensor_arrays import array_of, tensor_of
from datagen.engines.architecture import read_config
from datagen.engines.base import Answer, Capture, Ends, Engine, EngineInfo
from datagen.engines.batch import padded
from datagen.engines.copying import Carrier, Outbound
from datagen.engines.decoding import decode
from datagen.engines.endings import ending_token_ids
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.hooks import tapped
from datagen.engines.identity import longest_sample, read_target
from datagen.engines.loaded_ends import LoadedEnds
from datagen.engines.loading import TORCH_DTYPES, load_model
from datagen.engines.model_files import locate
from datagen.engines.opening_checks import schema_problems
from datagen.engines.positions import PositionRule, position_rule, together
from datagen.engines.proof import Anatomy, prove
from datagen.engines.sample_checks import checked, checked_prompts
from datagen.engines.sampling import Sampling
from datagen.engines.settings import EngineSettings
from datagen.template.tokenizer import load_tokenizer
from schemas.boundary import FINAL_NORMED, Place
from schemas.schema import Schema
from schemas.target import Target

__all__ = [
    "HfEngine",
    "ending_token_ids",
    "engine_version",
    "longest_sample",
    "open_engine",
    "read_target",
]

LOGIT_BYTES = 64 << 20
"""Bytes of logits that the head makes at a time."""


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Load the model that `settings` name and prove its structure.

    Raises `OpeningError` when it is not there, is not the schema's target, or cannot be proven.
    """
    target = read_target(settings)
    problems = schema_problems(schema, target, settings.dtype)
    if problems:
        raise OpeningError("the schema is not of the model that was opened", problems)
    files = locate(settings, with_weights=True)
    config = read_config(files.folder, trust_remote_code=settings.trust_remote_code)
    model = load_model(files.folder, config, settings)
    anatomy = prove(model, TORCH_DTYPES[settings.dtype])
    return HfEngine(LoadedModel(model, anatomy, settings, target), schema)


def engine_version() -> str:
    """Return the versions of what computes, as provenance compares them."""
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


class LoadedModel:
    """A proven model in memory, shared by the engines that hand out different tensors of it."""

    def __init__(self, model: Any, anatomy: Anatomy, settings: EngineSettings, target: Target) -> None:
        self.anatomy: Anatomy | None = anatomy
        self.model: Any = model
        # What the model's makers recommend would be mixed into what the run says.
        self.model.generation_config = transformers.GenerationConfig()
        self.positions: PositionRule = position_rule(model.config.get_text_config(decoder=True))
        self.settings = settings
        self.target = target
        self.carrier = Carrier()
        self.info = EngineInfo(
            name="hf",
            version=engine_version(),
            dtype=settings.dtype,
            device=_device_name(anatomy.input_device),
            extra={
                "class": type(model).__name__,
                "attn_implementation": str(getattr(model.config, "_attn_implementation", None)),
                "device_map": str(getattr(model, "hf_device_map", None) or anatomy.input_device),
                "longest_sample": str(self.positions.longest),
            },
            parting=self.positions.parting,
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer beside the weights: stop texts are looked for in what it makes of tokens."""
        return load_tokenizer(
            str(self.settings.model),
            revision=self.settings.revision,
            trust_remote_code=self.settings.trust_remote_code,
        )

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones as they are written."""
        text: str = self.tokenizer.decode(token_ids, clean_up_tokenization_spaces=False)
        return text

    def parts(self) -> Anatomy:
        """Return the model's parts; raises `EngineError` once it is closed."""
        if self.anatomy is None:
            raise EngineError("the engine is closed")
        return self.anatomy

    def close(self) -> None:
        """Drop the weights."""
        self.anatomy = self.model = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class HfEngine:
    """An engine of transformers; `submit` returns on CUDA as soon as the work is queued."""

    def __init__(self, loaded: LoadedModel, schema: Schema) -> None:
        self._loaded = loaded
        self._schema = schema
        self._places = {spec.name: Place(spec.boundary, spec.norm) for spec in schema.tensors}

    @property
    def info(self) -> EngineInfo:
        return self._loaded.info

    @property
    def target(self) -> Target:
        return self._loaded.target

    @property
    def schema(self) -> Schema:
        return self._schema

    def handing_out(self, schema: Schema) -> Engine:
        problems = schema_problems(schema, self.target, self._loaded.settings.dtype)
        if problems:
            raise OpeningError("the schema is not of the model that is loaded", problems)
        return HfEngine(self._loaded, schema)

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> "PendingForwards":
        anatomy = self._loaded.parts()
        rule = self._loaded.positions
        samples = checked(batch, anatomy.vocab_size, rule.longest)
        forwards = []
        for group in together([len(sample) for sample in samples], rule):
            members = [samples[index] for index in group]
            outbound = self._loaded.carrier.start(self._forward(anatomy, members, with_argmax))
            forwards.append(Forward(group, members, outbound))
        return PendingForwards(forwards, len(samples), self._schema.names)

    def _forward(
        self, anatomy: Anatomy, samples: Sequence[NDArray[np.int32]], with_argmax: bool
    ) -> dict[str, Tensor]:
        """Return on the device: each tensor [R, H], its norms [R] as `norm:NAME`, and `argmax` [R]."""
        batch = padded(samples, anatomy.input_device)
        places = dict(self._places)
        if with_argmax:
            places[FINAL_NORMED] = Place(len(anatomy.decoder.layers), "post_norm")
        taken: dict[str, Tensor] = {}

        def take(name: str, hidden: Tensor) -> None:
            if name in taken:
                raise EngineError(f"{name}: expected to be run once a forward, got a second time")
            taken[name] = batch.unpadded(hidden)

        with (
            torch.inference_mode(),
            tapped(anatomy.decoder.layers, anatomy.norm, places, take),
        ):
            anatomy.run(batch.ids)
            if missing := [name for name in places if name not in taken]:
                raise EngineError(f"expected every declared tensor, got none of {', '.join(missing)}")
            out = {name: taken[name] for name in self._places}
            for name in self._places:
                out[f"norm:{name}"] = torch.linalg.vector_norm(taken[name], dim=-1, dtype=torch.float32)
            if with_argmax:
                out["argmax"] = _head_argmax(anatomy, taken[FINAL_NORMED])
        return out

    def answer(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
    ) -> Sequence[Answer]:
        loaded = self._loaded
        anatomy = loaded.parts()
        checked_ids = checked_prompts(prompts, anatomy.vocab_size, sampling)
        device = anatomy.input_device
        answers: dict[int, Answer] = {}
        for group in _side_by_side(checked_ids, sampling, loaded.positions):
            members = [checked_ids[index] for index in group]
            numbers = [seeds[index] for index in group]
            made = decode(loaded.model, members, sampling, numbers, loaded.text_of, device)
            answers.update(zip(group, made, strict=True))
        return [answers[index] for index in range(len(prompts))]

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        anatomy, normed = self._normed(final)
        with torch.inference_mode():
            return _head_argmax(anatomy, normed).cpu().numpy()

    def head_ties(self, final: NDArray[np.generic]) -> NDArray[np.bool_]:
        anatomy, normed = self._normed(final)
        with torch.inference_mode():
            best = [logits.topk(2).values for logits in _logits(anatomy, normed)]
            return torch.cat([two[:, 0] == two[:, 1] for two in best]).cpu().numpy()

    def ends(self) -> Ends:
        return LoadedEnds.of(self._loaded.parts(), TORCH_DTYPES[self._loaded.settings.dtype])

    def _normed(self, final: NDArray[np.generic]) -> tuple[Anatomy, Tensor]:
        """Return stored `final` rows behind the final norm [T, H], on its device."""
        anatomy = self._loaded.parts()
        dtype = TORCH_DTYPES[self._loaded.settings.dtype]
        rows = tensor_of(final)
        if rows.dtype != dtype or rows.ndim != 2 or rows.shape[1] != self.target.hidden_size:
            expected = f"{dtype} [T, {self.target.hidden_size}]"
            raise EngineError(f"final: expected {expected}, got {rows.dtype} {tuple(rows.shape)}")
        device = next(anatomy.norm.parameters()).device
        with torch.inference_mode():
            normed: Tensor = anatomy.norm(rows[None].to(device))[0]
        return anatomy, normed

    def close(self) -> None:
        self._loaded.close()


class Forward:
    """The samples of one forward and their copies under way; `group` is their places in the batch."""

    def __init__(self, group: list[int], samples: list[NDArray[np.int32]], outbound: Outbound) -> None:
        self.group = group
        self.samples = samples
        self.outbound = outbound

    def captures(self, names: Sequence[str]) -> list[Capture]:
        """Wait for the copies and cut them into samples."""
        host = {name: array_of(tensor) for name, tensor in self.outbound.wait().items()}
        captures = []
        start = 0
        for ids in self.samples:
            rows = slice(start, start + len(ids))
            start = rows.stop
            captures.append(
                Capture(
                    token_ids=ids,
                    tensors={name: host[name][rows] for name in names},
                    norms={name: host[f"norm:{name}"][rows] for name in names},
                    argmax=host["argmax"][rows] if "argmax" in host else None,
                )
            )
        return captures


class PendingForwards:
    """The forwards of one submitted batch."""

    def __init__(self, forwards: Sequence[Forward], n_samples: int, names: Sequence[str]) -> None:
        self._forwards = forwards
        self._n_samples = n_samples
        self._names = names

    def result(self) -> Sequence[Capture]:
        """Wait for the states; what is returned holds its memory until it is dropped."""
        by_place: dict[int, Capture] = {}
        for forward in self._forwards:
            by_place.update(zip(forward.group, forward.captures(self._names), strict=True))
        return [by_place[index] for index in range(self._n_samples)]


def _side_by_side(
    prompts: Sequence[NDArray[np.int32]], sampling: Sampling, rule: PositionRule
) -> list[list[int]]:
    """Return which prompts may be answered in one batch: one that may pass `rule.parting` is alone."""
    longest = [len(prompt) + sampling.room(len(prompt)) for prompt in prompts]
    groups = together(longest, rule)
    if rule.parting is None:
        return groups
    return [
        part
        for group in groups
        for part in ([group] if longest[group[0]] <= rule.parting else [[index] for index in group])
    ]


def _head_argmax(anatomy: Anatomy, normed: Tensor) -> Tensor:
    """Return the head's choice [R] int32 for normed rows [R, H]."""
    return torch.cat([logits.argmax(-1).to(torch.int32) for logits in _logits(anatomy, normed)])


def _logits(anatomy: Anatomy, normed: Tensor) -> Iterator[Tensor]:
    """Yield the logits of normed rows [R, H], in chunks that keep them small."""
    device = next(anatomy.head.parameters()).device
    chunk = max(1, LOGIT_BYTES // (anatomy.vocab_size * normed.element_size()))
    for rows in torch.split(normed, chunk):
        yield anatomy.head(rows.to(device))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
