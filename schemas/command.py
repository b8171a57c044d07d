"""A console command of any room: its words in, its exit code out.

Exit codes are 0 (all well), 1 (problems found), 2 (could not try) and 130 (stopped by a signal).
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NoReturn

from schemas.errors import StrataError
from schemas.problem import Problem

Command = Callable[[Sequence[str]], int]
PACKAGE = "strata-hidden-states"
ROOMS = ("schemas", "datagen", "service")
"""Each room's extra has its name; `schemas` and the service's client need none."""
USAGE_EXIT = 2
INTERRUPTED_EXIT = 130


class UsageError(StrataError):
    """The words of a command are off."""


class NotInstalledError(StrataError):
    """The packages that a command needs are not installed: they come with an extra."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are errors of ours, so that `--json` holds for them too."""

    def error(self, message: str) -> NoReturn:
        problem = Problem(where=self.prog, kind="usage", message=message, repair=f"see `{self.prog} --help`")
        raise UsageError("cannot read the command's arguments", [problem])


def at_least_one(text: str) -> int:
    """Return the number that `text` is; raises `ArgumentTypeError` when it is none, or below 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)


def names(text: str) -> tuple[str, ...]:
    """Read `a,b`; raises `ArgumentTypeError` where a name is missing.

    >>> names("layer2, final")
    ('layer2', 'final')
    """
    pieces = tuple(piece.strip() for piece in text.split(","))
    if not all(pieces):
        raise argparse.ArgumentTypeError(f"expected names with a comma between two of them, got {text!r}")
    return pieces


def loaded(entry: EntryPoint) -> Command:
    """Import a command, which takes seconds; raises `NotInstalledError` with the extra that it comes with."""
    try:
        command: Command = entry.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in ROOMS:
            raise
        room = entry.module.partition(".")[0]
        message = f"expected the packages of the extra {room!r}, got no {missing}"
        repair = f"pip install '{PACKAGE}[{room}]'"
        problem = Problem(where=f"strata {entry.name}", kind="extra", message=message, repair=repair)
        raise NotInstalledError("this command is not installed", [problem]) from error
    return command


def local_path(text: str) -> Path:
    """Return the file or folder that `text` is; raises `ArgumentTypeError` for a URL, which is none.

    >>> local_path("s3://bucket/draft")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a file or a folder of this machine, got 's3://bucket/draft'
    """
    if "://" in text:
        raise argparse.ArgumentTypeError(f"expected a file or a folder of this machine, got {text!r}")
    return Path(text)


def guarded(command: Command, arguments: Sequence[str]) -> int:
    """Run a command; an error of ours is printed with all its problems (as JSON with `--json`)."""
    try:
        code = _told(command, arguments)
        # Here, since what fails at the interpreter's own flush ends in a traceback.
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("strata: stopped", file=sys.stderr)  # noqa: T201
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        # The reader (`| head`) went away: nothing is wrong, and nothing more can be said.
        _give_up_output()
        return 0
    except OSError as error:
        # The store tells its own; this one is of standard output (a full disk), or of the machine.
        print(f"strata: {error}", file=sys.stderr)  # noqa: T201
        _give_up_output()
        return USAGE_EXIT
    return code


def _told(command: Command, arguments: Sequence[str]) -> int:
    try:
        return command(arguments)
    except StrataError as error:
        if "--json" in arguments:
            problems = [problem.model_dump(mode="json") for problem in error.problems]
            print(json.dumps({"error": error.headline, "problems": problems}))  # noqa: T201
        else:
            print(f"strata: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
