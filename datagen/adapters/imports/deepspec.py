"""DeepSpec's target cache, read: every record of the index is held against the shards before it is followed.

Source of the format: `deepspec_layout`. A cache holds the draft's input and the state after the final norm;
what it lacks of a dataset is `final` itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.deepspec_layout import (
    HIDDEN_DTYPE,
    INDEX,
    MASK_DTYPE,
    RECORD,
    RECORD_DTYPE,
    TENSORS,
    TOKEN_DTYPE,
    VERSION,
    Shape,
)
from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_samples import Slot
from datagen.adapters.imports.cache_folder import MANIFEST, Caches, Found, count_in, folders_of, read_manifest
from datagen.adapters.imports.format import ForeignRow, ImportOptions, OpenFiles
from datagen.adapters.imports.padding import real_tokens
from datagen.adapters.read_at import read_at
from datagen.store.dtypes import NUMPY_DTYPES
from schemas.boundary import FINAL_NORMED
from schemas.problem import Problem

_DTYPES = tuple(NUMPY_DTYPES[name] for name in ("int32", "uint8", "uint8", "bfloat16", "bfloat16"))
_FIELDS: Mapping[str, object] = {
    "version": VERSION,
    "hidden_dtype": HIDDEN_DTYPE,
    "token_dtype": TOKEN_DTYPE,
    "mask_dtype": MASK_DTYPE,
    "index_record_size": RECORD.size,
}
"""What a manifest of the one layout that there is says."""


class DeepSpecFiles:
    """The target cache of version 2; an `ImportFormat`."""

    name = "deepspec"

    def open(self, paths: Sequence[Path], options: ImportOptions) -> OpenFiles:
        """Open caches by their folders or manifests."""
        caches = [_Cache(folder, options) for folder in folders_of(paths)]
        return Caches(caches, options.target, (FINAL_NORMED,))


class _Cache:
    """One folder; a sample's states are read at the places that its record says."""

    def __init__(self, folder: Path, options: ImportOptions) -> None:
        """Read manifest and index; raises `ForeignFileError` where there is no manifest."""
        self.folder = folder
        self.problems: list[Problem] = []
        self._options = options
        manifest = read_manifest(folder, "a target cache of DeepSpec")
        self.layer_ids: list[int] = []
        self._check_fields(manifest)
        self.width = count_in(manifest, "hidden_size") or 0
        self.shape = Shape(len(self.layer_ids), self.width)
        self.shards = self._shards(manifest)
        self.records = self._index(manifest)
        self.n_samples = len(self.records)
        self._overlapping = self._find_overlapping()

    def found(self, number: int) -> Found:
        path = self._shard_of(number) or self.folder / INDEX
        return Found(path, f"{path.name}[{number}]")

    def read(self, number: int, *, states: bool) -> ForeignRow:
        record = self.records[number]
        where = f"{self.folder / INDEX}[{number}]"
        n_tokens = int(record["seq_len"])
        problems = list(self._record_problems(record, number))
        if problems:
            raise ForeignFileError(f"sample {number} cannot be read", problems)
        ids, attention, mask, aux, last = (
            self._array(record, name, row_bytes, dtype, states or dtype != NUMPY_DTYPES[HIDDEN_DTYPE])
            for name, row_bytes, dtype in zip(TENSORS, self.shape.row_bytes, _DTYPES, strict=True)
        )
        n_real = n_tokens if self._options.padding == "keep" else real_tokens(attention, where)
        width = self.width
        slots = [
            Slot(f"target_hidden_states[{slot}]", aux[:n_real, slot * width : (slot + 1) * width])
            for slot in range(self.shape.n_layers)
        ]
        slots.append(Slot("target_last_hidden_states", last[:n_real]))
        return ForeignRow(ids[:n_real].astype(np.int64).reshape(-1), mask[:n_real].reshape(-1), tuple(slots))

    def _shard_of(self, number: int) -> Path | None:
        """Return the shard that a record names, `None` where there is no such shard."""
        shard_id = int(self.records[number]["shard_id"])
        return self.shards[shard_id] if shard_id < len(self.shards) else None

    def _array(
        self, record: Any, name: str, row_bytes: int, dtype: np.dtype[Any], values: bool
    ) -> NDArray[np.generic]:
        """Return `[T, width]` of one tensor of a sample."""
        shape = (int(record["seq_len"]), row_bytes // dtype.itemsize)
        return read_at(self.shards[int(record["shard_id"])], shape, dtype, int(record[name]), values=values)

    def _check_fields(self, manifest: Mapping[str, Any]) -> None:
        for field, expected in _FIELDS.items():
            if (got := manifest.get(field)) != expected:
                self._wrong(MANIFEST, "manifest", f"expected {field} {expected!r}, got {got!r}")
        expected, got = self._options.target.hidden_size, manifest.get("hidden_size")
        if got != expected:
            message = f"expected hidden_size {expected} of {self._options.target.model_id}, got {got!r}"
            self._wrong(MANIFEST, "target", message, "name the target that these states are of")
        listed, n_layers = manifest.get("target_layer_ids"), self._options.target.n_layers
        ids = listed if isinstance(listed, list) else []
        whole = all(type(one) is int and -1 <= one < n_layers for one in ids)
        if ids and whole and ids == sorted(set(ids)):
            self.layer_ids = ids
        else:
            message = (
                f"expected target_layer_ids that ascend, each once, from -1 to {n_layers - 1}, got {listed!r}"
            )
            self._wrong(MANIFEST, "manifest", message[:300])

    def _shards(self, manifest: Mapping[str, Any]) -> list[Path]:
        listed = manifest.get("shards")
        listed = listed if isinstance(listed, list) else []
        if manifest.get("num_shards") != len(listed):
            got = manifest.get("num_shards")
            self._wrong(MANIFEST, "manifest", f"expected num_shards {len(listed)}, as it lists, got {got!r}")
        shards = []
        for number, shard in enumerate(listed):
            name = shard.get("file_name") if isinstance(shard, dict) else None
            if not isinstance(shard, dict) or shard.get("shard_id") != number:
                got = shard.get("shard_id") if isinstance(shard, dict) else shard
                self._wrong(MANIFEST, "gap", f"expected shard_id {number}, got {got!r}")
            # A name with a path in it would read a file that is no part of the cache.
            plain = isinstance(name, str) and Path(name).name == name
            path = self.folder / (name if isinstance(name, str) and plain else "")
            if not plain or not path.is_file():
                self._wrong(MANIFEST, "missing", f"expected a shard file of the folder, got {name!r}")
            shards.append(path)
        return shards

    def _index(self, manifest: Mapping[str, Any]) -> NDArray[np.void]:
        path = self.folder / INDEX
        size_bytes = path.stat().st_size if path.is_file() else 0
        n_samples = manifest.get("num_samples")
        if size_bytes % RECORD.size or size_bytes // RECORD.size != n_samples:
            message = f"expected {n_samples!r} records of {RECORD.size} bytes, got {size_bytes:,} bytes"
            self._wrong(INDEX, "index", message, "copy it again, or make the cache again")
        n_whole = size_bytes // RECORD.size
        records = np.fromfile(path, RECORD_DTYPE, n_whole) if n_whole else np.empty(0, RECORD_DTYPE)
        gaps = np.flatnonzero(records["sample_id"] != np.arange(n_whole, dtype=np.uint64))
        if len(gaps):
            first = int(gaps[0])
            message = f"expected sample_id {first}, got {int(records['sample_id'][first])}"
            more = f", and {len(gaps) - 1:,} more out of place" if len(gaps) > 1 else ""
            self._wrong(f"{INDEX}[{first}]", "gap", message + more)
        return records

    def _record_problems(self, record: Any, number: int) -> Iterator[Problem]:
        where = f"{self.folder / INDEX}[{number}]"
        n_tokens = int(record["seq_len"])
        if n_tokens == 0:
            yield Problem(where=where, kind="empty", message="expected at least one token, got none")
        path = self._shard_of(number)
        if path is None:
            message = f"expected a shard below {len(self.shards)}, got {int(record['shard_id'])}"
            yield Problem(where=where, kind="outside", message=message)
            return
        size_bytes = self._size_bytes(int(record["shard_id"]))
        for name, row_bytes in zip(TENSORS, self.shape.row_bytes, strict=True):
            end = int(record[name]) + n_tokens * row_bytes
            if end > size_bytes:
                message = f"expected {path.name} to reach to byte {end:,}, got {size_bytes:,} bytes"
                repair = "copy the shard again: it was cut off, or the index is another cache's"
                yield Problem(where=f"{where}: {name}", kind="outside", message=message, repair=repair)
        if number in self._overlapping:
            message = "expected bytes of its own, got some that another sample has too"
            yield Problem(where=where, kind="overlap", message=message)

    def _find_overlapping(self) -> frozenset[int]:
        """Return the samples, of those inside their shard, that have bytes in common with another one."""
        found: set[int] = set()
        for shard_id in np.unique(self.records["shard_id"]):
            size_bytes = self._size_bytes(int(shard_id))
            numbers = np.flatnonzero((self.records["shard_id"] == shard_id) & (self.records["seq_len"] > 0))
            # In float: an offset of a damaged index may be near 2**64, where a sum of integers wraps.
            lengths = self.records["seq_len"][numbers].astype(np.float64)
            starts = np.stack([self.records[name][numbers].astype(np.float64) for name in TENSORS])
            ends = starts + np.outer(self.shape.row_bytes, lengths)
            inside = np.flatnonzero((ends <= size_bytes).all(axis=0))
            owners = np.tile(numbers[inside], len(TENSORS))
            starts, ends = starts[:, inside].reshape(-1), ends[:, inside].reshape(-1)
            order = np.argsort(starts, kind="stable")
            reach = np.maximum.accumulate(ends[order])
            late = np.flatnonzero(starts[order][1:] < reach[:-1])
            found |= set(owners[order][late + 1].tolist()) | set(owners[order][late].tolist())
        return frozenset(found)

    def _size_bytes(self, shard_id: int) -> int:
        path = self.shards[shard_id] if shard_id < len(self.shards) else None
        return path.stat().st_size if path is not None and path.is_file() else 0

    def _wrong(self, name: str, kind: str, message: str, repair: str | None = None) -> None:
        where = str(self.folder / name)
        self.problems.append(Problem(where=where, kind=kind, message=message, repair=repair))
