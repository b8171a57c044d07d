"""NeMo Automodel's EAGLE-3 cache, written: what its own precompute makes, from states that are stored.

The arithmetic is that of its `_compute_target_distribution` and `compress_target_probs`: logits in the dtype
of the states, softmax in float32, over the draft's tokens; a position counts where the target's own choice is
one of them. Where there is no next token, in padding and at a sample's last one, all tokens are equally
likely, as its shift leaves them (the softmax of zeros), and nothing is trained on.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datagen.adapters.automodel_layout import (
    CACHE_DTYPES,
    EMBEDDINGS,
    FIRST_TOKENS,
    N_LAYERS,
    SAFETENSORS_DTYPES,
    VERSION,
    Field,
    field_bytes,
    header,
    kept_probs,
    shard_fields,
    shard_name,
)
from datagen.adapters.exports.draft_vocabulary import DraftVocabulary
from datagen.adapters.exports.format import ExportFormat, PlannedFile, Row, Source, TargetEnds
from datagen.adapters.exports.lazy_states import PIECE_BYTES, one_dtype, windows
from datagen.adapters.exports.sharding import shard_bytes
from datagen.adapters.imports.cache_folder import MANIFEST
from datagen.adapters.tensor_arrays import array_of, tensor_of
from schemas.problem import Problem

SHARD_BYTES = 2**30
SHARD_SAMPLES = 256
"""A shard has as many samples as fit in its bytes, at most as many as Automodel's own by default."""
_TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class AutomodelFormat(ExportFormat):
    """The cache of format version 2."""

    name = "automodel"
    trainer = "automodel"
    vocabulary_files = (MANIFEST,)
    holds_out = False
    needs_head = True
    made_told = "tokens are moved one to the left, samples padded, probabilities made by the target's lm_head"
    options = frozenset({"sequence_length", "probs_top_k"})

    def problems(self, source: Source) -> Iterator[Problem]:
        names = (*source.wiring.fc, _last(source))
        yield from one_dtype(source, names, "aux_hidden_states")
        if len(names) != N_LAYERS + 1:
            message = f"expected {N_LAYERS} tensors, got {', '.join(source.wiring.fc)}"
            yield Problem(where="fc", kind="slots", message=message, repair="give --fc with three names")
        target = source.schema.target
        if source.head is None:
            yield Problem(
                where="--target-model",
                kind="missing",
                message=f"expected {target.model_id}, whose lm_head makes the probabilities that a cache of "
                "Automodel holds, got none",
                repair="add --target-model with its folder",
            )
        elif tuple(source.head.embedding.shape) != (target.vocab_size, target.hidden_size):
            message = (
                f"expected a table of {target.vocab_size} rows of {target.hidden_size}, "
                f"got {list(source.head.embedding.shape)}"
            )
            yield Problem(where="--target-model", kind="model", message=message)

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        shape = _shape_of(source)
        return [
            PlannedFile(
                shard_name(first // shape.shard_size),
                (shard := tuple(rows[first : first + shape.shard_size])),
                len(header(shape.fields, len(shard), shape.length)) + len(shard) * shape.sample_bytes,
            )
            for first in range(0, len(rows), shape.shard_size)
        ]

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        shape = _shape_of(source)
        length = shape.length
        yield header(shape.fields, len(file.rows), length)
        for row in file.rows:
            yield _bytes(_shifted(source.tokens(row, "input_ids"), length))
        for row in file.rows:
            yield _bytes((np.arange(length) < _n_tokens(row, length)).astype("<i8"))
        for row in file.rows:
            yield _bytes(_shifted(source.tokens(row, "loss_mask"), length))
        for row in file.rows:
            yield from _aux(row, source, length)
        yield from _Supervision(source, shape).pieces(file.rows)

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        shape, target = _shape_of(source), source.schema.target
        vocabulary = source.vocabulary
        chosen = np.arange(target.vocab_size) if vocabulary is None else vocabulary.tokens
        manifest = {
            "format_version": VERSION,
            "target_model": target.model_id,
            "target_vocab_size": target.vocab_size,
            "draft_vocab_size": len(chosen),
            "seq_length": shape.length,
            "dtype": CACHE_DTYPES[source.spec(source.wiring.fc[0]).dtype],
            "num_samples": len(rows),
            "shard_size": shape.shard_size,
            "target_probs_topk": shape.top_k or 0,
            "aux_hidden_dim": N_LAYERS * target.hidden_size,
            "aux_layer_ids": [boundary - 1 for boundary in source.wiring.boundaries],
            "selected_token_ids": chosen.tolist(),
            "input_data": f"strata:{source.schema.fingerprint}@{source.snapshot.version.number}",
            "split": None,
            "shuffle_seed": 0,
            # Options of its own tokenising: the trainer wants them equal to its config's, which has them off.
            "mask_reasoning_content": False,
            "mask_generation_prompt": False,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True), encoding="utf-8")
        _write_table(folder / EMBEDDINGS, _head(source).embedding)
        names = ("input_ids", "loss_mask")
        with open(folder / FIRST_TOKENS, "wb") as file:
            file.write(header(dict.fromkeys(names, Field("I64")), len(rows)))
            for name in names:
                file.write(_bytes(np.array([source.tokens(row, name)[0] for row in rows], "<i8")))
        return [MANIFEST, EMBEDDINGS, FIRST_TOKENS]

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:  # noqa: ARG002
        """Write nothing: the manifest has it."""
        return []

    def beside_bytes(self, source: Source) -> int:
        target = source.schema.target
        listed = 8 * (source.draft_vocab_size or target.vocab_size)
        return 4 * target.vocab_size * target.hidden_size + listed + 16 * len(source.rows) + 4096

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        return f"Automodel's EAGLE-3 recipe with recipe_args.cached_target_path: {folder} in its config"


class _Shape(NamedTuple):
    """What is equal in all shards: the tensors, S, and how many samples a shard has."""

    fields: dict[str, Field]
    length: int
    shard_size: int
    top_k: int | None

    @property
    def sample_bytes(self) -> int:
        return self.length * sum(map(field_bytes, self.fields.values()))


def _shape_of(source: Source) -> _Shape:
    target = source.schema.target
    length = source.sequence_length or source.longest
    draft_size = source.draft_vocab_size or target.vocab_size
    top_k = kept_probs(source.probs_top_k, draft_size)
    dtype = SAFETENSORS_DTYPES[source.spec(source.wiring.fc[0]).dtype]
    fields = shard_fields(dtype, target.hidden_size, draft_size, top_k)
    shape = _Shape(fields, length, 1, top_k)
    size = shard_bytes(len(source.rows) * shape.sample_bytes, SHARD_BYTES) // shape.sample_bytes
    return shape._replace(shard_size=min(max(size, 1), SHARD_SAMPLES))


class _Supervision:
    """The last tensors of a shard: the target's probabilities, and where they count."""

    def __init__(self, source: Source, shape: _Shape) -> None:
        self._source = source
        self._head = _head(source)
        self._shape = shape
        self._dtype = _TORCH_DTYPES[source.spec(source.wiring.fc[0]).dtype]
        chosen = source.vocabulary
        self._draft_size = source.draft_vocab_size or source.schema.target.vocab_size
        self._tokens = None if chosen is None else torch.from_numpy(chosen.tokens)
        self._known = None if chosen is None else torch.from_numpy(chosen.t2d)

    def pieces(self, rows: Sequence[Row]) -> Iterator[memoryview | bytes]:
        """Yield probabilities (their indices, where only some are kept, before them), then the mask."""
        length, top_k = self._shape.length, self._shape.top_k
        counts = np.zeros((len(rows), length), np.bool_)
        values: list[bytes] = []
        for row, counted in zip(rows, counts, strict=True):
            n_real = _n_tokens(row, length) - 1
            masked = _shifted(self._source.tokens(row, "loss_mask"), length)[:n_real] != 0
            first = 0
            for probs, known in self._of_sample(row, n_real):
                counted[first : first + len(known)] = known & masked[first : first + len(known)]
                first += len(known)
                if top_k is None:
                    yield _bytes(array_of(probs.to(self._dtype)))
                else:
                    kept, indices = _largest(probs, top_k)
                    values.append(bytes(_bytes(array_of(kept.to(self._dtype)))))
                    yield _bytes(indices.numpy())
            blank, blank_indices = self._blank()
            n_blank = length - n_real
            if top_k is not None:
                yield from _repeated(blank_indices, n_blank)
                values.extend(_repeated(blank, n_blank))
            else:
                yield from _repeated(blank, n_blank)
        yield from values
        yield _bytes(counts)

    def _of_sample(self, row: Row, n_real: int) -> Iterator[tuple[Tensor, NDArray[np.bool_]]]:
        """Yield `[t, D]` float32 and `[t]` for positions from 0, of the logits one state further on."""
        vocab_size = self._source.schema.target.vocab_size
        for first, end in windows(n_real + 1, vocab_size):
            states = self._source.tensor(row, _last(self._source), first, end)
            if first == 0:
                states = states[1:]
            if len(states):
                yield self._distribution(tensor_of(states))

    @torch.inference_mode()
    def _distribution(self, states: Tensor) -> tuple[Tensor, NDArray[np.bool_]]:
        logits = self._head.logits(states, norm=False)
        if self._tokens is None or self._known is None:
            return torch.softmax(logits.float(), dim=-1), np.ones(len(states), np.bool_)
        known = self._known[logits.argmax(dim=-1)].numpy()
        return torch.softmax(logits.index_select(-1, self._tokens).float(), dim=-1), known

    def _blank(self) -> tuple[bytes, bytes]:
        """Return one token's row where nothing follows: the softmax of zeros, and its indices."""
        size, top_k = self._draft_size, self._shape.top_k
        width = size if top_k is None else top_k
        row = torch.full((width,), 1 / width, dtype=torch.float32).to(self._dtype)
        return bytes(_bytes(array_of(row))), np.arange(width, dtype="<i4").tobytes()


def _largest(probs: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(probs, top_k, dim=-1)
    values = values / values.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(probs.dtype).tiny)
    return values, indices.to(torch.int32)


def _shifted(column: NDArray[np.generic], length: int) -> NDArray[np.int64]:
    """Return a token column one to the left, cut or padded with zeros to `length`.

    >>> _shifted(np.array([5, 6, 7], np.int32), 4), _shifted(np.array([5, 6, 7], np.int32), 2)
    (array([6, 7, 0, 0]), array([6, 0]))
    """
    moved = np.zeros(length, np.int64)
    inside = column[1:length]
    moved[: len(inside)] = inside
    return moved


def _aux(row: Row, source: Source, length: int) -> Iterator[memoryview | bytes]:
    """Yield `[S, 3H]` of one sample: the named tensors side by side, then zeros."""
    n_tokens = _n_tokens(row, length)
    spec = source.spec(source.wiring.fc[0])
    row_bytes = N_LAYERS * spec.row_bytes
    for first, end in windows(n_tokens, row_bytes):
        yield _bytes(
            np.concatenate([source.tensor(row, name, first, end) for name in source.wiring.fc], axis=1)
        )
    yield from _repeated(bytes(row_bytes), length - n_tokens)


def _repeated(row: bytes, count: int) -> Iterator[bytes]:
    step = max(PIECE_BYTES // len(row), 1)
    for first in range(0, count, step):
        yield row * min(step, count - first)


def _write_table(path: Path, table: Tensor) -> None:
    """Write the target's table as float32, a few rows at a time: it may be larger than half of the memory."""
    field = {"weight": Field("F32", (table.shape[1],))}
    with open(path, "wb") as file:
        file.write(header(field, table.shape[0]))
        for rows in torch.split(table, max(PIECE_BYTES // (4 * table.shape[1]), 1)):
            file.write(_bytes(array_of(rows.to(torch.float32))))


def _n_tokens(row: Row, length: int) -> int:
    return min(row.location.n_tokens, length)


def _last(source: Source) -> str:
    if source.wiring.target is None:
        raise ValueError("expected a trainer's wiring, which has a target, got one without")
    return source.wiring.target.tensor


def _head(source: Source) -> TargetEnds:
    if source.head is None:
        raise ValueError("expected the target's head, which is asked for before anything is planned")
    return source.head


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
