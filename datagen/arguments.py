"""Arguments that commands share: `--config FILE`, `--json`, and every setting as a flag of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datagen.config import RunConfig, load_config, print_settings
from schemas.command import Parser

SETTINGS_NOTE = (
    "Every setting below is a key of [section] in the file, a flag, and an environment variable "
    "(STRATA_SECTION__KEY); a flag wins over a variable, and that over the file."
)


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
