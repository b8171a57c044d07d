"""`strata check`: do the dataset, the trainer and the server mean the same tensors?"""

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from datagen.printing import printable
from datagen.wiring.cards import write_card
from datagen.wiring.checking import Asked, Report, card_of, check
from schemas.command import Parser, local_path
from schemas.consumers.declared import names
from schemas.consumers.resolution import Resolution
from schemas.judging import as_data

PROG = "strata check"
_ID = re.compile("-?[0-9]{1,6}")
SLOT = "slot"
"""The kind of problems that are the detail of the one before them."""
DESCRIPTION = """Say, before a GPU-hour is spent, whether dataset, trainer and server mean the same tensors.

Any two of the three can be compared; a draft's config says what the server will read, a card or a wiring file
stands in for a trainer. Exit codes: 0 they mean the same, 1 problems were found, 2 could not try."""


def command(arguments: Sequence[str]) -> int:
    """Check that dataset, trainer and server mean the same tensors, slot by slot."""
    parser = _parser()
    given = parser.parse_args(list(arguments))
    if given.save_card is not None and not (given.dataset and (given.trainer or given.trainer_wiring)):
        parser.error("argument --save-card: expected --dataset, and --trainer or --trainer-wiring, with it")
    asked = Asked(
        dataset=given.dataset,
        trainer=given.trainer,
        trainer_ids=given.trainer_ids,
        trainer_engine=given.trainer_engine,
        raw=given.raw,
        trainer_wiring=given.trainer_wiring,
        card=given.card,
        server=given.server,
        server_wiring=given.server_wiring,
        draft_config=given.draft_config,
        target_config=given.target_config,
        server_args=given.server_args,
    )
    report = check(asked)
    saved = None
    if given.save_card is not None and not report.errors:
        saved = write_card(given.save_card, card_of(report))
    if given.json:
        print(json.dumps({**as_data(report), "card": str(saved) if saved else None}))  # noqa: T201
    else:
        print(printable("\n".join(in_words(report))))  # noqa: T201
        if given.save_card is not None:
            print(printable(f"card     {saved}" if saved else "no card is written"))  # noqa: T201
    return 1 if report.errors else 0


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=DESCRIPTION)
    parser.add_argument(
        "--dataset", metavar="ROOT/DATASET[@V]", help="as data/demo or s3://bucket/root/demo@3"
    )
    parser.add_argument(
        "--trainer",
        metavar="NAME[==VERSION]",
        help=f"as speculators==0.4.0; one of {', '.join(names('trainer'))}",
    )
    parser.add_argument(
        "--trainer-ids",
        type=read_ids,
        metavar="ID,ID,...",
        help="the layer ids that the trainer is given, in its own numbers, in place of its default",
    )
    parser.add_argument(
        "--trainer-engine",
        metavar="NAME==VERSION",
        help="what the trainer captures with, where it is not the release that it comes with",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="the trainer reads samples as they are stored, with neither an export nor the client between",
    )
    parser.add_argument(
        "--trainer-wiring",
        type=local_path,
        metavar="FILE",
        help="a trainer of your own, in TOML: [wiring] with name, kind, fc and a target, or [[consumer]]",
    )
    parser.add_argument(
        "--card",
        type=local_path,
        metavar="FILE",
        help="the card of a draft's checkpoint, in place of a trainer",
    )
    parser.add_argument(
        "--save-card",
        type=local_path,
        metavar="FILE",
        help="write the card of dataset and trainer where all is well",
    )
    parser.add_argument(
        "--server",
        metavar="NAME[==VERSION]",
        help=f"as sglang==0.5.23; one of {', '.join(names('server'))}",
    )
    parser.add_argument(
        "--server-wiring",
        type=local_path,
        metavar="FILE",
        help="a server of your own, in TOML: [wiring] with name, kind and fc, or [[consumer]]",
    )
    parser.add_argument(
        "--draft-config",
        type=local_path,
        metavar="FILE",
        help="the draft's config.json, or its checkpoint's folder",
    )
    parser.add_argument(
        "--target-config",
        type=local_path,
        metavar="FILE",
        help="the target's config.json; needed where neither a dataset nor a card says which target it is",
    )
    parser.add_argument(
        "--server-args", metavar="ARGS", help="the command line that the server is started with"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def read_ids(text: str) -> tuple[int, ...]:
    """Return the ids in `2,30,58`; raises `ArgumentTypeError` for anything else.

    >>> read_ids("-1, 2,30")
    (-1, 2, 30)
    """
    pieces = [piece.strip() for piece in text.split(",")]
    if all(_ID.fullmatch(piece) for piece in pieces):
        return tuple(map(int, pieces))
    raise ArgumentTypeError(f"expected layer ids as 2,30,58, got {text[:80]!r}")


def in_words(report: Report) -> Iterator[str]:
    """Yield what a person reads: what each side means, the verdict, then problems and notes."""
    if report.dataset is not None:
        schema = report.dataset.schema
        target = f"{schema.target.model_id}, {schema.target.n_layers} layers"
        yield f"dataset  {report.dataset.reference}: {', '.join(schema.names)} ({target})"
    if report.trained is not None:
        yield from _resolution("trainer", report.trained)
    if report.served is not None:
        yield from _resolution("server", report.served)
    if report.flags is not None:
        yield f"flags    {report.flags}"
        if report.flags.equivalent:
            yield f"           elsewhere: {report.flags.equivalent}"
    yield ""
    count = sum(problem.kind != SLOT for problem in report.errors)
    yield "they mean the same tensors" if not count else f"{count} problem{'s' if count > 1 else ''}"
    for problem, following in zip_longest(report.errors, report.errors[1:]):
        indent = "      " if problem.kind == SLOT else "  "
        yield f"{indent}{problem.where}: {problem.message}"
        # What a whole input and its slots share is told once, behind the last of them.
        if problem.repair and (following is None or following.repair != problem.repair):
            yield f"      repair: {problem.repair}"
    for problem in report.notes:
        if problem.kind != SLOT:
            yield f"  note: {problem}"


def _resolution(who: str, resolution: Resolution) -> Iterator[str]:
    title = resolution.consumer + (f"=={resolution.version}" if resolution.version else "")
    wiring = resolution.wiring
    if wiring is None:
        yield f"{who:<8} {title}: what it takes is not known"
    else:
        target = ""
        if wiring.target is not None:
            treatment = "which it norms" if wiring.target.applies_norm else "as it is"
            target = f"; target {wiring.target.tensor}, {treatment}"
        yield f"{who:<8} {title}: input {', '.join(wiring.fc)}{target}"
    for step in resolution.steps:
        yield f"           {step}"
