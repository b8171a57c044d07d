"""Arguments that commands share: `--config FILE`, `--json`, and every setting as a flag of its own."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from datagen.config import RunConfig, load_config, print_settings
from schemas.errors import StrataError
from schemas.problem import Problem

SETTINGS_NOTE = (
    "Every setting below is a key of [section] in the file, a flag, and an environment variable "
    "(STRATA_SECTION__KEY); a flag wins over a variable, and that over the file."
)


class UsageError(StrataError):
    """The words of a command are off."""


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


@dataclass(frozen=True)
class ConfigArguments:
    """A configuration, and whether the answer is to be JSON."""

    config: RunConfig
    as_json: bool


def read_config_arguments(prog: str, summary: str, arguments: Sequence[str]) -> ConfigArguments:
    """Read `--config FILE [--json] [--section.key VALUE ...]`; `--help` lists every setting and exits."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} [--config FILE] [--json] [--section.key VALUE ...]",
        description=f"{summary} {SETTINGS_NOTE}",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the run's TOML file")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    if {"-h", "--help"} & set(arguments):
        print_settings(parser)
        raise SystemExit(0)
    known, rest = parser.parse_known_args(list(arguments))
    return ConfigArguments(load_config(rest, known.config, prog), known.json)
