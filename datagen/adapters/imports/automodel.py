"""NeMo Automodel's EAGLE-3 cache, read: the draft's inputs, and tokens moved back to their states.

A cache has no final state: of it only probabilities over the draft's tokens are left, which are no tensor of
the target's. Its shift drops each sample's first token and mask; an export of ours keeps them beside, for
others they are to be said. Source of the format: `automodel_layout`.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.automodel_layout import (
    CACHE_DTYPES,
    FIRST_TOKENS,
    N_LAYERS,
    SAFETENSORS_DTYPES,
    VERSION,
    kept_probs,
    shard_fields,
    shard_name,
)
from datagen.adapters.errors import ForeignFileError
from datagen.adapters.foreign_samples import Slot
from datagen.adapters.imports.cache_folder import MANIFEST, Caches, Found, count_in, folders_of, read_manifest
from datagen.adapters.imports.format import ForeignRow, ImportOptions, OpenFiles
from datagen.adapters.imports.padding import real_tokens
from datagen.adapters.placed_safetensors import Placed, placed_in, read_plane, read_tensor, tensors_of
from schemas.problem import Problem

_COUNTS = ("num_samples", "shard_size", "seq_length", "aux_hidden_dim", "draft_vocab_size")
_READ = ("input_ids", "attention_mask", "loss_mask", "aux_hidden_states")


class AutomodelFiles:
    """The cache of format version 2; an `ImportFormat`."""

    name = "automodel"

    def open(self, paths: Sequence[Path], options: ImportOptions) -> OpenFiles:
        """Open caches by their folders or manifests."""
        caches = [_Cache(folder, options) for folder in folders_of(paths)]
        return Caches(caches, options.target, (), [_lost(cache.folder) for cache in caches])


class _Cache:
    """One folder; a shard's head is read when a sample of it is first read."""

    def __init__(self, folder: Path, options: ImportOptions) -> None:
        """Read the manifest and the shards' heads; raises `ForeignFileError` where there is no manifest."""
        self.folder = folder
        self.problems: list[Problem] = []
        self._options = options
        manifest = read_manifest(folder, "a cache of Automodel's precompute_eagle3")
        self._check_version(manifest)
        self._counts = {name: self._count(manifest, name) for name in _COUNTS}
        self.layer_ids = self._layers(manifest)
        self.width = self._counts["aux_hidden_dim"] // N_LAYERS
        self._check_target(manifest)
        # A manifest that is wrong says nothing that shards could be held against.
        if not self.problems:
            self._check_shards(manifest)
        self.n_samples = 0 if self.problems else self._counts["num_samples"]
        self._firsts = None if self.problems else self._read_firsts()
        self._placed: dict[Path, dict[str, Placed]] = {}
        self._lock = threading.Lock()

    def found(self, number: int) -> Found:
        shard, inside = divmod(number, self._counts["shard_size"])
        return Found(self.folder / shard_name(shard), f"{shard_name(shard)}[{inside}]")

    def read(self, number: int, *, states: bool) -> ForeignRow:
        inside = number % self._counts["shard_size"]
        path, name = self.found(number)
        where = f"{path.parent / name}"
        placed = self._placed_in(path)
        ids, attention, mask = (read_plane(path, placed[name], inside) for name in _READ[:3])
        aux = read_plane(path, placed[_READ[3]], inside, values=states)
        n_real = len(ids) if self._options.padding == "keep" else real_tokens(attention, where)
        first_id, first_mask = self._first(number, where)
        slots = [
            Slot(f"aux_hidden_states[{slot}]", aux[:n_real, slot * self.width : (slot + 1) * self.width])
            for slot in range(N_LAYERS)
        ]
        return ForeignRow(
            np.concatenate([[first_id], ids[: n_real - 1]]).astype(np.int64),
            np.concatenate([[first_mask], mask[: n_real - 1]]),
            tuple(slots),
        )

    def _placed_in(self, path: Path) -> dict[str, Placed]:
        with self._lock:
            if path not in self._placed:
                self._placed[path] = tensors_of(path, _READ)
            return self._placed[path]

    def _first(self, number: int, where: str) -> tuple[int, int]:
        """Return a sample's first token and its mask, which its place before all others makes 0 elsewhere."""
        if self._firsts is not None:
            return int(self._firsts["input_ids"][number]), int(self._firsts["loss_mask"][number])
        if self._options.first_token is None:
            message = "expected each sample's first token, which Automodel's shift drops, got none"
            repair = "give --first-token with the id that every prompt begins with"
            raise _refused(where, "first_token", message, repair)
        return self._options.first_token, 0

    def _check_version(self, manifest: Mapping[str, Any]) -> None:
        if (got := manifest.get("format_version")) != VERSION:
            self._wrong(MANIFEST, "manifest", f"expected format_version {VERSION}, got {got!r}")
        if (got := manifest.get("dtype")) not in CACHE_DTYPES.values():
            known = ", ".join(CACHE_DTYPES.values())
            self._wrong(MANIFEST, "manifest", f"expected dtype {known}, got {got!r}")

    def _count(self, manifest: Mapping[str, Any], name: str) -> int:
        value = count_in(manifest, name)
        if value is None:
            self._wrong(MANIFEST, "manifest", f"expected {name} above 0, got {manifest.get(name)!r}")
        return value or 0

    def _layers(self, manifest: Mapping[str, Any]) -> list[int]:
        ids = manifest.get("aux_layer_ids")
        if (
            isinstance(ids, list)
            and len(ids) == N_LAYERS
            and all(type(one) is int and one >= 0 for one in ids)
        ):
            return ids
        message = f"expected aux_layer_ids of {N_LAYERS} layers from 0 up, got {ids!r}"
        self._wrong(MANIFEST, "manifest", message[:300])
        return []

    def _check_target(self, manifest: Mapping[str, Any]) -> None:
        target = self._options.target
        expected = {
            "target_vocab_size": target.vocab_size,
            "aux_hidden_dim": N_LAYERS * target.hidden_size,
        }
        for name, size in expected.items():
            if (got := manifest.get(name)) != size:
                message = f"expected {name} {size} of {target.model_id}, got {got!r}"
                self._wrong(MANIFEST, "target", message, "name the target that these states are of")
        if self.layer_ids and max(self.layer_ids) >= target.n_layers:
            message = f"expected layers below {target.n_layers} of {target.model_id}, got {self.layer_ids}"
            self._wrong(MANIFEST, "target", message, "name the target that these states are of")

    def _check_shards(self, manifest: Mapping[str, Any]) -> None:
        n_samples, size = self._counts["num_samples"], self._counts["shard_size"]
        n_shards = -(-n_samples // size)
        there = {path.name for path in self.folder.glob("shard-*.safetensors")}
        told = f"expected {n_shards} shards of {n_samples} samples, {size} each"
        missing = next((name for name in map(shard_name, range(n_shards)) if name not in there), None)
        if missing is not None:
            repair = "copy the cache again: its trainer takes no gaps either"
            self._wrong(missing, "gap", f"{told}, got {len(there)} without this one", repair)
            return
        if len(there) != n_shards:
            self._wrong(shard_name(n_shards), "manifest", f"{told}, got {len(there)}")
            return
        dtype = {short: name for name, short in CACHE_DTYPES.items()}[manifest["dtype"]]
        top_k = manifest.get("target_probs_topk")
        fields = shard_fields(
            SAFETENSORS_DTYPES[dtype],
            self.width,
            self._counts["draft_vocab_size"],
            kept_probs(top_k if type(top_k) is int else None, self._counts["draft_vocab_size"]),
        )
        for number in range(n_shards):
            n_inside = min(size, n_samples - number * size)
            shapes = {
                name: (field.dtype, [n_inside, self._counts["seq_length"], *field.rest])
                for name, field in fields.items()
            }
            self._check_shard(shard_name(number), shapes)

    def _check_shard(self, name: str, shapes: Mapping[str, tuple[str, list[int]]]) -> None:
        try:
            got = placed_in(self.folder / name)
        except ForeignFileError:
            return  # told of each of its samples, when they are read; the other shards are whole
        for key, (dtype, shape) in shapes.items():
            there = got.get(key)
            if there is None or (there.dtype, list(there.shape)) != (dtype, shape):
                told = "none" if there is None else f"{there.dtype} {list(there.shape)}"
                message = f"expected {dtype} {shape}, as the manifest says, got {told}"
                self._wrong(f"{name}: {key}", "manifest", message)

    def _read_firsts(self) -> dict[str, NDArray[Any]] | None:
        path = self.folder / FIRST_TOKENS
        if not path.is_file():
            return None
        names = ("input_ids", "loss_mask")
        try:
            found = {name: read_tensor(path, placed) for name, placed in tensors_of(path, names).items()}
        except ForeignFileError as error:
            self.problems += error.problems
            return None
        for name in names:
            if found[name].shape != (self.n_samples,):
                message = f"expected {name} [{self.n_samples}], got {list(found[name].shape)}"
                self._wrong(FIRST_TOKENS, "shape", message)
                return None
        return found

    def _wrong(self, name: str, kind: str, message: str, repair: str | None = None) -> None:
        where = str(self.folder / name)
        self.problems.append(Problem(where=where, kind=kind, message=message, repair=repair))


def _lost(folder: Path) -> Problem:
    return Problem(
        where=str(folder),
        kind="lost",
        severity="note",
        message="a cache of Automodel keeps no final state: the draft's inputs come in, probabilities over "
        "the draft's tokens do not, and a dataset of them alone can train no draft",
        repair="capture final of the same samples in a run of its own",
    )


def _refused(where: str, kind: str, message: str, repair: str | None = None) -> ForeignFileError:
    problem = Problem(where=where, kind=kind, message=message, repair=repair)
    return ForeignFileError("the sample cannot be read", [problem])
