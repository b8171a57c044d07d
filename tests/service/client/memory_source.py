"""A source for streams that holds its samples itself, and counts what is asked of it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datagen.store.sample_data import SampleData
from schemas.final_norm import FinalNorm
from schemas.schema import Schema
from service.client.rows import BITS, Out, Rows, buffer_of
from service.client.version import OrderTable
from tests.builders import random_sample, tiny_schema


@dataclass
class MemorySource:
    """Samples of one version in memory; `broken` ids raise, until they are taken out."""

    schema: Schema
    samples: dict[str, SampleData]
    dataset: str = "demo"
    number: int = 1
    final_norm: FinalNorm | None = None
    broken: set[str] = field(default_factory=set)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def order_table(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0
    ) -> OrderTable:
        rows = []
        for sample_id in sorted(self.samples):
            mask = self.samples[sample_id].tokens["loss_mask"]
            if len(mask) >= min_tokens and int(mask.sum()) >= min_trained:
                rows.append((bytes.fromhex(sample_id), len(mask), int(mask.sum())))
        ids = np.array([np.frombuffer(row[0], np.uint8) for row in rows], np.uint8).reshape(-1, 32)
        return OrderTable(
            ids, np.array([row[1] for row in rows], np.int32), np.array([row[2] for row in rows], np.int32)
        )

    def batch(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None, *, out: Out = None
    ) -> Rows:
        return self._read(sample_ids, names, None, out)

    def tensors(
        self,
        sample_id: str,
        names: Sequence[str] | None = None,
        tokens: slice | None = None,
        *,
        out: Out = None,
    ) -> Rows:
        return self._read([sample_id], names, tokens, out)

    def _read(
        self, sample_ids: Sequence[str], names: Sequence[str] | None, tokens: slice | None, out: Out
    ) -> Rows:
        self.asked.append(tuple(sample_ids))
        self.threads.add(threading.current_thread().name)
        for sample_id in sample_ids:
            if sample_id in self.broken:
                raise OSError(f"{sample_id} is broken")
        window = tokens or slice(None)
        chosen = [self.samples[sample_id] for sample_id in sample_ids]
        dtypes = {spec.name: str(spec.dtype) for spec in self.schema.tensors}
        dtypes |= {column.name: str(column.dtype) for column in self.schema.token_columns}
        parts: dict[str, NDArray[np.uint8]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names or dtypes:
            whole = np.concatenate([_column(sample, name)[window] for sample in chosen])
            parts[name] = np.ascontiguousarray(whole).view(np.uint8).reshape(-1)
            shapes[name] = whole.shape
        buffer = buffer_of(out, sum(part.nbytes for part in parts.values()))
        arrays: dict[str, NDArray[np.generic]] = {}
        at = 0
        for name, part in parts.items():
            buffer[at : at + part.nbytes] = part
            arrays[name] = buffer[at : at + part.nbytes].view(BITS[dtypes[name]]).reshape(shapes[name])
            at += part.nbytes
        lengths = [len(_column(sample, "input_ids")[window]) for sample in chosen]
        return Rows(
            dataset=self.dataset,
            version=self.number,
            sample_ids=tuple(sample_ids),
            offsets=np.array([0, *np.cumsum(lengths)], np.int64),
            tensors={name: array for name, array in arrays.items() if name in self.schema.names},
            tokens={name: array for name, array in arrays.items() if name not in self.schema.names},
            dtypes=dtypes,
            buffer=buffer,
        )


def _column(sample: SampleData, name: str) -> NDArray[np.generic]:
    return sample.tokens[name] if name in sample.tokens else sample.tensors[name]


def source_of(lengths: Sequence[int], schema: Schema | None = None, seed: int = 0) -> MemorySource:
    """Return a source of random samples, one a length."""
    schema = schema or tiny_schema(("layer1", "layer2", "layer3", "final", "final_normed"))
    samples = [random_sample(schema, length, seed + number) for number, length in enumerate(lengths)]
    return MemorySource(schema, {sample.sample_id: sample for sample in samples})
