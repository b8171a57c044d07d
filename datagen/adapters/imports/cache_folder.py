"""Caches of samples in shards under a manifest, as an import reads them: one folder or several as one.

A manifest is somebody else's word: nothing of it is followed before it is compared with the files.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from datagen.adapters.errors import ForeignFileError, check_is_file
from datagen.adapters.imports.format import ForeignRow, Listed
from schemas.boundary import EMBED, FINAL
from schemas.problem import Problem
from schemas.target import Target

MANIFEST = "manifest.json"


class Found(NamedTuple):
    """Where a sample lies: its file, and what a person finds it by."""

    path: Path
    name: str


class Cache(Protocol):
    """One folder that was looked through; `layer_ids` are what layer id (from 0) writes, -1 the embedding."""

    folder: Path
    problems: list[Problem]
    layer_ids: list[int]
    width: int
    n_samples: int

    def found(self, number: int) -> Found:
        """Return where a sample lies."""
        ...

    def read(self, number: int, *, states: bool) -> ForeignRow:
        """Read one, its states' values if asked; raises `ForeignFileError` with every problem."""
        ...


class Caches:
    """Several caches as one; an `OpenFiles`. `behind` are the tensors that follow the layers in every row."""

    def __init__(
        self, caches: Sequence[Cache], target: Target, behind: Sequence[str], notes: Sequence[Problem] = ()
    ) -> None:
        self._by_name: dict[str, tuple[Cache, int]] = {}
        samples = []
        for cache in caches:
            before = f"{cache.folder}/" if len(caches) > 1 else ""
            for number in range(cache.n_samples):
                path, name = cache.found(number)
                samples.append(Listed(f"{before}{name}", path, number))
                self._by_name[samples[-1].name] = (cache, number)
        self.samples: Sequence[Listed] = samples
        self.problems: Sequence[Problem] = [
            *(problem for cache in caches for problem in cache.problems),
            *_differences(caches),
            *notes,
        ]
        ids = caches[0].layer_ids if caches else []
        names = [layer_name(number + 1, target.n_layers) for number in ids]
        self.claimed: tuple[str, ...] | None = (*names, *behind) if names else None

    def read(self, listed: Listed, *, states: bool = True) -> ForeignRow:
        """Read one; raises `ForeignFileError` with every problem of it."""
        cache, number = self._by_name[listed.name]
        return cache.read(number, states=states)


def _differences(caches: Sequence[Cache]) -> Iterator[Problem]:
    for cache in caches[1:]:
        first = caches[0]
        if (cache.layer_ids, cache.width) != (first.layer_ids, first.width):
            message = (
                f"expected layers {first.layer_ids} of width {first.width} as in {first.folder}, "
                f"got {cache.layer_ids} of width {cache.width}"
            )
            repair = "ingest them one by one, each into a dataset of its own"
            yield Problem(where=str(cache.folder), kind="manifest", message=message, repair=repair)


def layer_name(boundary: int, n_layers: int) -> str:
    """Return the tensor at a boundary, before the final norm.

    >>> [layer_name(boundary, 30) for boundary in (0, 15, 30)]
    ['embed', 'layer15', 'final']
    """
    return EMBED if boundary == 0 else FINAL if boundary == n_layers else f"layer{boundary}"


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders that were named, by themselves or by their manifests."""
    return list(dict.fromkeys(path.parent if path.name == MANIFEST else path for path in paths))


def read_manifest(folder: Path, what: str) -> Mapping[str, Any]:
    """Return a cache's manifest; raises `ForeignFileError` where there is none that can be read."""
    path = folder / MANIFEST
    check_is_file(path)
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _unread(path, f"expected {what}, got a folder without a manifest") from error
    except (OSError, ValueError, RecursionError) as error:
        told = str(error).partition("\n")[0][:120]
        raise _unread(path, f"expected a JSON object, got {told}") from error
    if not isinstance(manifest, dict):
        raise _unread(path, f"expected a JSON object, got {type(manifest).__name__}")
    return manifest


def _unread(path: Path, message: str) -> ForeignFileError:
    problem = Problem(where=str(path), kind="manifest", message=message, repair="give the cache's folder")
    return ForeignFileError("the cache cannot be read", [problem])


def count_in(manifest: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number above 0, `None` where the manifest has another value.

    >>> count_in({"a": 3, "b": True}, "a"), count_in({"a": 3, "b": True}, "b")
    (3, None)
    """
    value = manifest.get(name)
    return value if type(value) is int and value > 0 else None
