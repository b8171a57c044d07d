"""The synthetic engine: deterministic tensors from the schema and the token ids, without weights or torch.

For tests, load and capacity trials. Row t of a tensor is a row of that tensor's *bank* of random rows, chosen
by a hash of (seed, tensor, token id, t): whoever knows the ids can make every row again, a swapped token or
tensor shows, and a row costs one memory copy. Each bank row's norm and, for `final`, the token that the
made-up lm_head chooses are computed once with the bank. Norms grow with depth, as a residual stream's do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from datagen.engines.base import Answer, Capture, Engine, EngineInfo
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.opening_checks import schema_problems
from datagen.engines.sample_checks import checked, checked_prompts
from datagen.engines.sampling import Sampling
from datagen.engines.settings import EngineSettings, SyntheticSettings
from schemas.boundary import FINAL, place_of
from schemas.problem import Problem
from schemas.record import canonical_json, sha256_hex
from schemas.schema import DType, Schema
from schemas.target import Target, WeightsDigest

VERSION = "synthetic 1"
"""Goes up whenever the same settings and ids give other bytes."""

BANK_BYTES = 8 << 20
"""A bank is about this large, so that banks stay near the processor's caches."""
NUMPY_DTYPES: Mapping[DType, np.dtype[np.generic]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
}


def read_target(settings: EngineSettings) -> Target:
    """Return the identity of the model that the engine stands for: a digest of its settings."""
    shape = settings.synthetic
    digest = sha256_hex(canonical_json([VERSION, shape.model_dump(mode="json")]))
    return Target(
        model_id=f"synthetic-{digest[:8]}",
        revision=None,
        model_type=shape.model_type,
        architecture="Synthetic",
        n_layers=shape.n_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        weights=WeightsDigest(method="synthetic", sha256=digest),
        quantisation=None,
        tokenizer_sha256=sha256_hex(b"strata.synthetic.tokenizer.v1"),
        chat_template_sha256=None,
    )


def longest_sample(_settings: EngineSettings) -> int | None:
    """Return `None`: made-up states have no longest sample."""
    return None


def ending_token_ids(_settings: EngineSettings) -> tuple[int, ...]:
    """Return the one token that ends a made-up answer."""
    return (0,)


def engine_version() -> str:
    """Return the version of what computes, as provenance compares it."""
    return VERSION


def open_engine(settings: EngineSettings, schema: Schema) -> Engine:
    """Return the engine; raises `OpeningError` when `schema` is not of its target and dtype."""
    target = read_target(settings)
    if problems := schema_problems(schema, target, settings.dtype):
        raise OpeningError("the schema is not of the model that was opened", problems)
    return SyntheticEngine(settings, target, schema, _Banks(settings.synthetic, settings.dtype))


class SyntheticEngine:
    """An engine that makes states up, the same ones every time."""

    def __init__(self, settings: EngineSettings, target: Target, schema: Schema, banks: "_Banks") -> None:
        self._settings = settings
        self._target = target
        self._schema = schema
        self._banks = banks

    @property
    def info(self) -> EngineInfo:
        return EngineInfo("synthetic", VERSION, self._settings.dtype, "cpu")

    @property
    def target(self) -> Target:
        return self._target

    @property
    def schema(self) -> Schema:
        return self._schema

    def handing_out(self, schema: Schema) -> Engine:
        if problems := schema_problems(schema, self._target, self._settings.dtype):
            raise OpeningError("the schema is not of the model that is loaded", problems)
        return SyntheticEngine(self._settings, self._target, schema, self._banks)

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> "Done":
        self._banks.check_open()
        samples = checked(batch, self._target.vocab_size)
        return Done([self.capture(ids, with_argmax=with_argmax) for ids in samples])

    def answer(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
    ) -> Sequence[Answer]:
        """Make answers up: at temperature 0 what the head chooses, else hashes of the prompt and the seed;
        texts end none."""
        self._banks.check_open()
        checked_ids = checked_prompts(prompts, self._target.vocab_size, sampling)
        return [
            self._answer(ids, sampling, seed) if sampling.temperature > 0 else self._likeliest(ids, sampling)
            for ids, seed in zip(checked_ids, seeds, strict=True)
        ]

    def _answer(self, prompt: NDArray[np.int32], sampling: Sampling, seed: int) -> Answer:
        room = sampling.room(len(prompt))
        key = sha256_hex(canonical_json([VERSION, self._settings.synthetic.seed, prompt.tolist(), seed]))
        words = _mixed(np.arange(room, dtype=np.uint64) ^ np.uint64(int(key[:16], 16)))
        ids = (words % np.uint64(self._target.vocab_size)).astype(np.int64)
        # So that about half of the answers end by themselves.
        ends = np.isin(ids, sampling.stop_token_ids) | (words % np.uint64(2 * sampling.max_tokens) == 0)
        if not sampling.stop_token_ids or not ends.any():
            return Answer(tuple(ids.tolist()), "length")
        end = int(np.flatnonzero(ends)[0])
        return Answer((*ids[:end].tolist(), sampling.stop_token_ids[0]), "stop")

    def _likeliest(self, prompt: NDArray[np.int32], sampling: Sampling) -> Answer:
        final = self._banks[FINAL]
        choices = self._banks.head(final.rows)
        ids, last = [], int(prompt[-1])
        for position in range(len(prompt) - 1, len(prompt) - 1 + sampling.room(len(prompt))):
            last = int(choices[final.row_of(last, position)])
            ids.append(last)
            if last in sampling.stop_token_ids:
                return Answer(tuple(ids), "stop")
        return Answer(tuple(ids), "length")

    def capture(self, token_ids: NDArray[np.int32], *, with_argmax: bool = False) -> Capture:
        """Return the states of one sample: what `submit` hands out for it, in any batch."""
        tensors: dict[str, NDArray[np.generic]] = {}
        norms: dict[str, NDArray[np.float32]] = {}
        for name in self._schema.names:
            bank = self._banks[name]
            chosen = bank.choose(token_ids)
            tensors[name] = bank.rows_at(chosen)
            norms[name] = bank.norms[chosen]
        argmax = None
        if with_argmax:
            final = self._banks[FINAL]
            argmax = self._banks.head(final.rows)[final.choose(token_ids)]
        return Capture(token_ids=token_ids, tensors=tensors, norms=norms, argmax=argmax)

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        self._banks.check_open()
        expected = NUMPY_DTYPES[self._settings.dtype]
        if final.ndim != 2 or final.shape[1] != self._target.hidden_size or final.dtype != expected:
            raise EngineError(
                f"final: expected {expected} [T, {self._target.hidden_size}], got {final.dtype} {final.shape}"
            )
        return self._banks.head(final)

    def close(self) -> None:
        self._banks.close()


@dataclass(frozen=True)
class Done:
    """Work that was finished when it was submitted."""

    captures: list[Capture]

    def result(self) -> Sequence[Capture]:
        """Return the states."""
        return self.captures


class _Bank:
    """The rows [N, H] that one tensor is made of, and their norms [N]."""

    def __init__(self, settings: SyntheticSettings, dtype: DType, name: str) -> None:
        kind = NUMPY_DTYPES[dtype]
        place = place_of(name, settings.n_layers)
        if isinstance(place, Problem):
            raise EngineError("the synthetic engine has no such tensor", [place])
        key = sha256_hex(canonical_json([VERSION, settings.seed, name]))
        self._key = np.uint64(int(key[:16], 16))
        width = settings.hidden_size
        n_rows = min(4096, max(256, BANK_BYTES // (width * kind.itemsize)))
        # A row's norm is about sqrt(H) times this: from 1 at the embedding up with depth, 1 after the norm.
        scale = 1.0 if place.norm == "post_norm" else 1.0 + 63.0 * place.boundary / settings.n_layers
        rows = _uniform(int(key[16:48], 16), n_rows * width).reshape(n_rows, width)
        self.rows: NDArray[np.generic] = (rows * np.float32(scale)).astype(kind)
        wide = self.rows.astype(np.float32)
        self.norms: NDArray[np.float32] = np.sqrt(np.einsum("nh,nh->n", wide, wide))

    def choose(self, token_ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the bank row [T] of each token: a hash of the tensor, the token's id and its position."""
        position = np.arange(len(token_ids), dtype=np.uint64)
        word = (position << np.uint64(32)) | token_ids.astype(np.uint64)
        return (_mixed(word ^ self._key) % np.uint64(len(self.rows))).astype(np.int64)

    def row_of(self, token_id: int, position: int) -> int:
        """Return the bank row of one token."""
        word = np.array([position << 32 | token_id], np.uint64)
        return int(_mixed(word ^ self._key)[0] % np.uint64(len(self.rows)))

    def rows_at(self, chosen: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the rows [T, H], copied as integers: numpy copies its own types faster than bfloat16."""
        return self._bits.take(chosen, axis=0).view(self.rows.dtype)

    @cached_property
    def _bits(self) -> NDArray[np.generic]:
        return self.rows.view(np.dtype(f"u{self.rows.itemsize}"))


class _Banks:
    """The banks of a model, made when they are first needed, and its made-up lm_head."""

    def __init__(self, settings: SyntheticSettings, dtype: DType) -> None:
        self._settings = settings
        self._dtype = dtype
        self._made: dict[str, _Bank] = {}
        self._open = True

    def __getitem__(self, name: str) -> _Bank:
        if name not in self._made:
            self._made[name] = _Bank(self._settings, self._dtype, name)
        return self._made[name]

    def head(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        """Return the token [T] that the made-up lm_head chooses: a hash of the row's first 8 bytes."""
        raw = np.ascontiguousarray(final).view(np.uint8).reshape(len(final), -1)[:, :8]
        words = np.zeros((len(final), 8), dtype=np.uint8)
        words[:, : raw.shape[1]] = raw
        hashed = _mixed(words.view("<u8")[:, 0] ^ np.uint64(self._settings.seed))
        return (hashed % np.uint64(self._settings.vocab_size)).astype(np.int32)

    def check_open(self) -> None:
        """Raise `EngineError` once the engine is closed."""
        if not self._open:
            raise EngineError("the engine is closed")

    def close(self) -> None:
        """Drop the banks."""
        self._open = False
        self._made.clear()


def _uniform(seed: int, count: int) -> NDArray[np.float32]:
    """Return `count` values of mean 0 and deviation 1.

    From the bit generator's own words, which numpy keeps the same for ever; its distributions it may change.
    """
    words = np.random.PCG64(seed).random_raw((count + 1) // 2).view(np.uint32)[:count]
    unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    return np.asarray(unit * np.float32(3.0**0.5), np.float32)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finaliser of each word: every input bit reaches every output bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
