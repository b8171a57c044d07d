"""The house as source: its modules, their names and their syntax trees."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ROOMS = ("schemas", "datagen", "service")


class Module(NamedTuple):
    """One Python file: its dotted name, where it lies, its lines and its tree."""

    name: str
    path: Path
    n_lines: int
    tree: ast.Module


@cache
def modules(*rooms: str) -> tuple[Module, ...]:
    """Return every module under the given top folders, by name."""
    found = []
    for path in sorted(path for room in rooms for path in (ROOT / room).rglob("*.py")):
        pieces = path.relative_to(ROOT).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        name = ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)
        found.append(Module(name, path, len(text.splitlines()), ast.parse(text)))
    return tuple(found)


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of each module that `tree` imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def room_of(name: str) -> str:
    """Return the first piece of a dotted name."""
    return name.split(".", 1)[0]
