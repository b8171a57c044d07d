"""The console command `strata`: finds the subcommands that are installed.

A subcommand is an entry point of the group `strata.commands`: a function that takes the arguments after its
name and returns an exit code. 0: all well; 1: problems found; 2: could not try; 130: stopped by a signal.
"""

import ast
import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from schemas.command import PACKAGE, Command, guarded, loaded
from schemas.errors import StrataError
from schemas.problem import Problem

GROUP = "strata.commands"


class UnknownCommandError(StrataError):
    """No installed room has a command of this name."""


def main() -> int:
    """Run `strata COMMAND [ARGS ...]`."""
    name, *arguments = sys.argv[1:] or ["--help"]
    commands = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if name in ("-h", "--help"):
        _print_help(commands)
        return 0
    if name == "--version":
        print(importlib.metadata.version(PACKAGE))  # noqa: T201
        return 0
    return guarded(lambda words: _found(name, commands)(words), arguments)


def _found(name: str, commands: Mapping[str, importlib.metadata.EntryPoint]) -> Command:
    """Load a command; it is in the guard's hands already, since loading takes seconds and may be stopped."""
    if name not in commands:
        message = f"expected one of {', '.join(sorted(commands))}, got {name!r}"
        problem = Problem(where="strata", kind="usage", message=message, repair="see `strata --help`")
        raise UnknownCommandError("no such command", [problem])
    return loaded(commands[name])


def _print_help(commands: dict[str, importlib.metadata.EntryPoint]) -> None:
    print("usage: strata COMMAND [ARGS ...]\n")  # noqa: T201
    for name in sorted(commands):
        print(f"  {name:<10} {_summary(commands[name])}")  # noqa: T201
    print("\n`strata COMMAND --help` says more; a dataset is written ROOT/DATASET[@VERSION]")  # noqa: T201


def _summary(entry: importlib.metadata.EntryPoint) -> str:
    """Return the first line of a command's docstring, read from its source: importing all takes seconds."""
    spec = importlib.util.find_spec(entry.module)
    if spec is None or spec.origin is None:
        return "not installed"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry.attr]
    return ((ast.get_docstring(found[0]) if found else None) or "").partition("\n")[0]
