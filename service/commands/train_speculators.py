"""`strata train-speculators`: speculators' own trainer, reading a dataset of Strata in place of files."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence

from schemas.command import Parser, UsageError, local_path, names
from schemas.problem import Problem
from service.trainers.held import KEY_VARIABLE
from service.trainers.launching import TRAINER, Asked, Launch, plan_speculators

PROG = "strata train-speculators"
RANK = "RANK"
"""What torchrun numbers its processes by; one of them says what is trained."""
DESCRIPTION = f"""Train a draft with {TRAINER}'s own trainer, reading states from a dataset, with no copy.

What stands after `--` is the trainer's own. What the trainer reads beside the states is prepared once, in
--prepared; its wiring is checked against the dataset, and its arguments against both, before its first step.
A service's key is read from {KEY_VARIABLE}. Works under `torchrun --no-python`, too: one rank prepares. Exit
codes: 0 trained, 1 trainer and dataset do not mean the same, or a signal stopped the training, 2 could not
try."""


def command(arguments: Sequence[str]) -> int:
    """Train a draft with speculators' own trainer, live from a dataset."""
    own, words = _parted(arguments)
    parser = _parser()
    given = parser.parse_args(own)
    source = given.data if given.data is not None else _served(parser, given.url, given.dataset)
    asked = Asked(source, given.prepared, given.fc, given.target, given.split or ())
    launch = plan_speculators(asked, words)
    if os.environ.get(RANK, "0") == "0":
        print("\n".join(in_words(launch)), file=sys.stderr, flush=True)  # noqa: T201
    if not given.prepare_only:
        launch.run()
    return 0


def in_words(launch: Launch) -> Iterator[str]:
    """Yield what a person reads before the trainer begins."""
    prepared, wiring = launch.prepared, launch.prepared.meant.card.wiring
    held_out = prepared.n_rows - prepared.n_train
    target = f"; target {wiring.target.tensor}" if wiring.target else ""
    yield f"dataset   {launch.held.source}: {prepared.n_rows:,} samples, {prepared.n_tokens:,} tokens"
    yield f"wiring    {wiring.title}: input {', '.join(wiring.fc)}{target}"
    yield f"rows      {prepared.n_train:,} for training, then {held_out:,} held out"
    yield f"prepared  {prepared.folder}{', as it was' if prepared.was_there else ''}"
    yield from (f"note      {note}" for note in launch.notes)
    yield f"trainer   speculators train {' '.join(launch.words)}"


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our own words and the trainer's, which stand after the first `--`."""
    words = list(arguments)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description=DESCRIPTION,
        usage=f"{PROG} (--data ROOT/DATASET[@V] | --url URL --dataset DATASET[@V]) --prepared DIR "
        "[--fc NAME,...] [--split NAME,...] -- ARGUMENTS OF speculators train",
        allow_abbrev=False,
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", metavar="ROOT/DATASET[@V]", help="a dataset in a folder or a bucket")
    where.add_argument("--url", help="a service, as http://127.0.0.1:8350; with --dataset")
    parser.add_argument("--dataset", metavar="DATASET[@V]", help="a dataset of the service")
    parser.add_argument(
        "--prepared",
        required=True,
        type=local_path,
        metavar="DIR",
        help="where ids, masks and token counts lie for the trainer; made when it is not there",
    )
    parser.add_argument(
        "--fc",
        type=names,
        metavar="NAME,NAME,...",
        help="the draft's input, as layer2,layer15,layer27 (default: what the trainer takes)",
    )
    parser.add_argument(
        "--target", metavar="NAME", help="the state that the draft learns from (default: final)"
    )
    parser.add_argument(
        "--split",
        type=names,
        metavar="NAME,NAME,...",
        help="only these splits, the first for training (default: all, parted between two conversations)",
    )
    parser.add_argument("--prepare-only", action="store_true", help="check and prepare, and train nothing")
    parser.add_argument("--json", action="store_true", help="say what is wrong as one JSON object")
    return parser


def _served(parser: ArgumentParser, url: str, dataset: str | None) -> str:
    if dataset is None:
        message = "expected --dataset with --url, got none"
        problem = Problem(where=PROG, kind="usage", message=message, repair=f"see `{parser.prog} --help`")
        raise UsageError("cannot read the command's arguments", [problem])
    return f"{url}#{dataset}"
