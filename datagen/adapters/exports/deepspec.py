"""DeepSpec's target cache, written: shards of whole samples, the index over them, and the manifest.

Its trainer shifts by itself, and takes the last state as it is, after the target's final norm: tokens and
states are written unshifted, the last one as `final_normed`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.deepspec_layout import (
    HIDDEN_DTYPE,
    INDEX,
    MASK_DTYPE,
    RECORD,
    TOKEN_DTYPE,
    VERSION,
    Shape,
    shard_name,
)
from datagen.adapters.exports.format import ExportFormat, PlannedFile, Row, Source
from datagen.adapters.exports.lazy_states import side_by_side
from datagen.adapters.exports.sharding import shard_bytes
from datagen.adapters.imports.cache_folder import MANIFEST
from schemas.problem import Problem
from schemas.wiring import Wiring

SHARD_BYTES = 2 * 2**30
"""Of the largest shard, unless a sample is larger; DeepSpec's own writer cuts at 64 GiB."""


class DeepSpecFormat(ExportFormat):
    """The target cache of version 2."""

    name = "deepspec"
    trainer = "deepspec"
    holds_out = False

    def problems(self, source: Source) -> Iterator[Problem]:
        for name in (*source.wiring.fc, _last(source.wiring)):
            if (dtype := source.spec(name).dtype) != HIDDEN_DTYPE:
                yield Problem(
                    where=name,
                    kind="dtype",
                    message=f"expected bfloat16, the only float dtype of a target cache, got {dtype}",
                    repair="make the dataset with tensors.dtype bfloat16",
                )

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        shape = _shape(source)
        return [
            PlannedFile(shard_name(number), shard, sum(_sample_bytes(row, shape) for row in shard))
            for number, shard in enumerate(_shards(rows, shape))
        ]

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        for row in file.rows:
            n_tokens = row.location.n_tokens
            yield _bytes(source.tokens(row, "input_ids").astype("<i4"))
            yield b"\1" * n_tokens
            yield _bytes(source.tokens(row, "loss_mask").astype(np.uint8))
            for names in (source.wiring.fc, (_last(source.wiring),)):
                for states in side_by_side(source, row, names).read():
                    yield _bytes(states)

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        shape = _shape(source)
        shards = list(_shards(rows, shape))
        with open(folder / INDEX, "wb") as index:
            for number, shard in enumerate(shards):
                start = 0
                for row in shard:
                    n_tokens = row.location.n_tokens
                    index.write(RECORD.pack(row.number, number, n_tokens, *shape.offsets(start, n_tokens)))
                    start += _sample_bytes(row, shape)
        manifest = {
            "version": VERSION,
            "num_samples": len(rows),
            "num_shards": len(shards),
            "target_layer_ids": layer_ids(source.wiring),
            "hidden_dtype": HIDDEN_DTYPE,
            "token_dtype": TOKEN_DTYPE,
            "mask_dtype": MASK_DTYPE,
            "index_record_size": RECORD.size,
            "hidden_size": shape.hidden_size,
            "shards": [
                {"shard_id": number, "file_name": shard_name(number)} for number in range(len(shards))
            ],
            # Its trainer compares this name with the one in its own config.
            "target_model_name_or_path": source.schema.target.model_id,
            "source_jsonl_paths": [],
            "max_length": source.longest,
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True), encoding="utf-8")
        return [INDEX, MANIFEST]

    def beside_bytes(self, source: Source) -> int:
        return RECORD.size * len(source.rows) + 4096

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        ids = ", ".join(map(str, layer_ids(source.wiring)))
        model = source.schema.target.model_id
        return (
            f"DeepSpec with data.target_cache_path {folder}, model.target_layer_ids [{ids}] and "
            f"model.target_model_name_or_path {model}: it refuses a cache of other ones"
        )


def layer_ids(wiring: Wiring) -> list[int]:
    """Return the input's layers as DeepSpec numbers them: what layer id writes, -1 for the embedding."""
    return [boundary - 1 for boundary in wiring.boundaries]


def _last(wiring: Wiring) -> str:
    if wiring.target is None:
        raise ValueError("expected a trainer's wiring, which has a target, got one without")
    return wiring.target.tensor


def _shape(source: Source) -> Shape:
    return Shape(len(source.wiring.fc), source.schema.target.hidden_size)


def _sample_bytes(row: Row, shape: Shape) -> int:
    return row.location.n_tokens * sum(shape.row_bytes)


def _shards(rows: Sequence[Row], shape: Shape) -> Iterator[tuple[Row, ...]]:
    most = shard_bytes(sum(_sample_bytes(row, shape) for row in rows), SHARD_BYTES)
    shard: list[Row] = []
    size_bytes = 0
    for row in rows:
        sample_bytes = _sample_bytes(row, shape)
        if shard and size_bytes + sample_bytes > most:
            yield tuple(shard)
            shard, size_bytes = [], 0
        shard.append(row)
        size_bytes += sample_bytes
    if shard:
        yield tuple(shard)


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
