"""A draft's checkpoint as its safetensors headers tell it: names and shapes, not a byte of the weights.

A header is JSON behind its own length (8 bytes, little-endian); nothing else of a file is read.
"""

import json
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from schemas.problem import Problem

INDEX = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format itself."""
Shape = tuple[int, ...]


def read_safetensors_names(path: Path) -> tuple[dict[str, Shape], tuple[Problem, ...]]:
    """Return name and shape of each weight of a .safetensors file, or of a folder of them, and what is wrong.

    A folder's index is followed where there is one: a file that it names and is not there is a problem.
    """
    problems: list[Problem] = []
    tensors: dict[str, Shape] = {}
    for file in _files(path, problems):
        for name, shape in _header(file, problems):
            if name in tensors:
                problems.append(_wrong(file, f"expected each name once, got {name[:80]!r} in two files"))
            tensors[name] = shape
    return tensors, tuple(problems)


def _wrong(file: Path, message: str) -> Problem:
    return Problem(
        where=file.name or str(file),
        kind="safetensors",
        message=message,
        repair="give the draft's .safetensors file or its folder; copy it again if it was cut off",
    )


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        problems.append(_wrong(path, "expected a file or a folder, got neither"))
        return []
    index = path / INDEX
    if not index.is_file():
        found = sorted(path.glob("*.safetensors"))
        if not found:
            problems.append(_wrong(path, "expected .safetensors files in this folder, got none"))
        return found
    try:
        content = json.loads(index.read_bytes())
        named = sorted({file for file in content["weight_map"].values() if isinstance(file, str)})
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        problems.append(_wrong(index, f"expected an index with a weight_map, got {type(error).__name__}"))
        return []
    # A name with a folder in it would lead out of the checkpoint.
    missing = [name for name in named if Path(name).name != name or not (path / name).is_file()]
    problems += [_wrong(index, f"names {name[:80]!r}, which is not in the folder") for name in missing]
    return [path / name for name in named if name not in missing]


def _header(file: Path, problems: list[Problem]) -> Iterator[tuple[str, Shape]]:
    try:
        header = _read_header(file)
    except (OSError, ValueError, RecursionError, struct.error) as error:
        problems.append(_wrong(file, f"expected a safetensors file, got {error or type(error).__name__}"))
        return
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape):
            yield name, tuple(shape)
        else:
            problems.append(_wrong(file, f"expected a shape for {name[:80]!r}, got none"))


def _read_header(file: Path) -> dict[str, object]:
    """Read a header; raises `ValueError` for what is no safetensors file, or is shorter than it says."""
    with file.open("rb") as stream:
        (n_bytes,) = struct.unpack("<Q", stream.read(8))
        size = os.fstat(stream.fileno()).st_size
        if n_bytes > min(_MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"a header of {n_bytes} bytes in a file of {size}")
        header = json.loads(stream.read(n_bytes))
    if not isinstance(header, dict):
        raise ValueError(f"a header that is a {type(header).__name__}")
    ends = [entry["data_offsets"][1] for entry in header.values() if _has_offsets(entry)]
    if (end := 8 + n_bytes + max(ends, default=0)) > size:
        raise ValueError(f"{size} bytes of {end}: it was cut off")
    return header


def _has_offsets(entry: object) -> bool:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    return (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(offset) is int and 0 <= offset < math.inf for offset in offsets)
    )
