"""The engine's contract: token ids in, named hidden states of exactly these ids out.

An engine is given its target and the declared tensors once, then batches. `submit` may return before the work
is done (a GPU copies out on a side stream), `Pending.result` waits; a worker keeps one batch ahead, so that
the device never waits for the disk. Every engine passes `tests/contract/engine_contract.py`.

Shapes: T tokens of a sample, H the width. Tensors are C-contiguous numpy arrays `[T, H]` of the schema's
dtype (`ml_dtypes.bfloat16` where it is bfloat16), unpadded and unshifted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from datagen.engines.sampling import Sampling
from schemas.schema import Schema
from schemas.target import Target


@dataclass(frozen=True)
class Capture:
    """The hidden states of one sample, as the engine hands them out.

    `token_ids` are the ids that the engine says it ran, not those it was asked for: the caller compares.
    `norms` are the L2 norms a token, computed where the tensor lies (on the device); NaN or Inf there means
    that the row holds NaN or Inf. `argmax` is the engine's own next-token choice a position (`None` unless
    asked for).
    """

    token_ids: NDArray[np.int32]
    tensors: Mapping[str, NDArray[np.generic]]
    norms: Mapping[str, NDArray[np.float32]]
    argmax: NDArray[np.int32] | None = None


class Pending(Protocol):
    """Work that was submitted."""

    def result(self) -> Sequence[Capture]:
        """Wait for the states, one `Capture` a sample in the order of submission."""
        ...


@dataclass(frozen=True)
class EngineInfo:
    """What a run records of its engine: its name, the version of what computes, and what it computes in.

    Samples on either side of `parting` tokens have other states of the same beginning (longrope); `None`
    where all have the same.
    """

    name: str
    version: str
    dtype: str
    device: str
    extra: Mapping[str, str] = field(default_factory=dict)
    parting: int | None = None


class Engine(Protocol):
    """Runs a target and hands out the tensors of `schema`. One engine lives in one Ray actor."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def target(self) -> Target:
        """The identity of the model that is loaded."""
        ...

    @property
    def schema(self) -> Schema:
        """The tensors that `submit` hands out."""
        ...

    def submit(self, batch: Sequence[Sequence[int]], *, with_argmax: bool = False) -> Pending:
        """Start the capture of a batch of token-id lists of any lengths from 1.

        `with_argmax` also runs the lm_head (audit rows only; capture itself never does).

        Raises `BatchError` for an empty batch, an empty sample, one longer than the model has positions for,
        or an id outside the vocabulary; `EngineError` once the engine is closed.
        """
        ...

    def handing_out(self, schema: Schema) -> "Engine":
        """Return an engine that shares this one's loaded model and hands out the tensors of another schema.

        The audit set is made so (every boundary), without loading a model twice. Closing one closes both.

        Raises `EngineError` when the schema is of another target or dtype.
        """
        ...

    def head_argmax(self, final: NDArray[np.generic]) -> NDArray[np.int32]:
        """Return `argmax(lm_head(norm(final)))` for stored `final` rows `[T, H]`: the check of audit rows."""
        ...

    def close(self) -> None:
        """Release the model and its device memory; calling it again does nothing."""
        ...


@runtime_checkable
class TieTelling(Protocol):
    """An engine that can say where its head has no single choice."""

    def head_ties(self, final: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return for stored `final` rows `[T, H]` where two tokens have the same largest logit `[T]`."""
        ...


class Ends(Protocol):
    """A model's embedding, final norm and lm_head, asked for a few tokens, never for the whole vocabulary.

    In host memory, and called from another thread than the engine that they came from.
    """

    def embed(self, token_ids: NDArray[np.integer]) -> NDArray[np.generic]:
        """Return what the embedding makes of token ids: rows [T, H] of the engine's dtype."""
        ...

    def norm(self, final: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return `norm(final)` for stored `final` rows [T, H]."""
        ...

    def head(self, token_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the lm_head's rows [T, H] of token ids: their products with normed rows are logits."""
        ...


@runtime_checkable
class EndsTelling(Protocol):
    """An engine that can hand out the ends of its model."""

    def ends(self) -> Ends:
        """Return the ends; raises `OpeningError` with what keeps the model from having them."""
        ...


class Answer(NamedTuple):
    """What a target said: its own token ids, without the prompt, the token that ends its turn included.

    `finish` is `stop` where it ended by itself or at a stop text, `length` where its limit cut it.
    """

    token_ids: tuple[int, ...]
    finish: Literal["stop", "length"]


@runtime_checkable
class Answering(Protocol):
    """An engine that can let its target answer; every one passes `tests/contract/answering_contract.py`."""

    def answer(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int]
    ) -> Sequence[Answer]:
        """Return an answer to each prompt, in order.

        An answer ends behind the first of `sampling.stop_token_ids` (which are all that end one: the model's
        own and the template's), behind the token that completes one of `sampling.stop`, or at
        `sampling.room` tokens. It follows from its prompt, the settings and its seed alone, in any batch,
        but for the numerics of a batch. Temperature 0 takes the likeliest token and uses no seed.

        Raises `BatchError` as `submit` does, and for a prompt that leaves no room for an answer.
        """
        ...
