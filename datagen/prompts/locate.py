"""From what the settings name to the sources that are there; all that are not are told at once."""

import glob
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from datagen.prompts.errors import PromptError
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import speakable
from schemas.problem import Problem

SourceKind = Literal["jsonl", "json", "parquet", "dataset_folder", "hub"]

HUB_PREFIX = "hf://"
HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
SUFFIXES: dict[str, SourceKind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
SAVED_MARKERS = ("dataset_dict.json", "dataset_info.json")
"""Either stands at the top of a folder written by datasets' `save_to_disk`."""


@dataclass(frozen=True)
class Source:
    """One file, dataset folder or hub id. `name` is what `file:line` begins with."""

    name: str
    kind: SourceKind
    path: str


def locate(settings: PromptSettings) -> tuple[Source, ...]:
    """Return the sources in the order they are named, files of a folder sorted, each once.

    Raises `PromptError` with every path that is missing, empty or of an unknown kind.
    """
    problems: list[Problem] = []
    found: dict[str, Source] = {}
    for path in settings.paths:
        for item in _expanded(path):
            if isinstance(item, Problem):
                problems.append(item)
            else:
                key = item.path if item.kind == "hub" else str(Path(item.path).resolve())
                found.setdefault(key, item)
    for source in found.values():
        problems += _content_problems(source)
    if not settings.paths:
        problems.append(Problem(where="prompts.path", kind="missing", message="expected a path, got none"))
    if problems:
        raise PromptError("the prompts cannot be read", problems)
    return _named(tuple(found.values()))


def _expanded(path: str) -> Iterator[Source | Problem]:
    if path.startswith(HUB_PREFIX):
        if HUB_ID.fullmatch(path.removeprefix(HUB_PREFIX)):
            yield Source(path, "hub", path)
        else:
            yield Problem(where=path, kind="hub", message="expected hf://owner/name[@revision]")
        return
    place = Path(path).expanduser()
    if place.is_dir():
        yield from _of_folder(place)
    elif place.is_file():
        yield _of_file(place)
    elif matches := sorted(glob.glob(str(place), recursive=True)):
        for match in map(Path, matches):
            yield from _of_folder(match) if match.is_dir() else [_of_file(match)]
    else:
        yield Problem(
            where=path, kind="missing", message="expected a file, folder or glob, got nothing there"
        )


def _of_file(path: Path) -> Source | Problem:
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(SUFFIXES)
        message = f"expected a file ending in {known}, got {path.suffix or 'no suffix'!r}"
        return Problem(where=str(path), kind="suffix", message=message)
    return Source(str(path), kind, str(path))


def _of_folder(folder: Path) -> Iterator[Source | Problem]:
    if any((folder / marker).is_file() for marker in SAVED_MARKERS):
        yield Source(str(folder), "dataset_folder", str(folder))
        return
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not files:
        known = ", ".join(SUFFIXES)
        message = f"expected files ending in {known}, or a folder saved by datasets, got neither"
        yield Problem(where=str(folder), kind="empty", message=message)
    yield from map(_of_file, files)


def _content_problems(source: Source) -> Iterator[Problem]:
    """Yield why a file cannot be read at all: what is wrong inside it is a matter of its records."""
    try:
        if source.kind == "parquet":
            pq.read_metadata(source.path)
        elif source.kind in {"jsonl", "json"}:
            with open(source.path, "rb") as file:
                start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            if source.kind == "json" and start and start[:1] not in (b"[", b"{"):
                message = f"expected a JSON array or JSON lines, got {start[:20]!r}"
                yield Problem(where=source.path, kind="json", message=message)
    except (OSError, pa.ArrowException) as error:
        yield Problem(where=source.path, kind="unreadable", message=f"cannot be read: {error}")


def _named(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """Name each source by its last path component, by the path as written where two share that."""
    last = Counter(Path(source.path).name for source in sources)
    named = []
    for source in sources:
        short = Path(source.path).name
        keep = source.kind == "hub" or last[short] > 1
        named.append(replace(source, name=speakable(source.path if keep else short)))
    return tuple(named)
