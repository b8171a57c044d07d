"""`strata versions`: a dataset's versions, listed, compared, named, changed, and their garbage collected."""

import argparse
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from schemas.command import Parser, UsageError, at_least_one
from schemas.problem import Problem
from schemas.record import Record, canonical_json, validation_problems
from schemas.reference import NEWEST, parse_reference
from service.commands import tables
from service.served import comparison, management
from service.served.changes import (
    CondemnChange,
    DropChange,
    NameChange,
    RollbackChange,
    SplitChange,
    SweepChange,
)

PROG = "strata versions"
_R = TypeVar("_R", bound=Record)
_GRACE = re.compile(r"(0|[1-9][0-9]{0,7})([smhd])|0")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Answer(NamedTuple):
    """What an action found: as data, and in words."""

    data: object
    words: str


class Asked(NamedTuple):
    """A dataset, the version that its reference names (`latest` where none), and the words after it."""

    dataset: Dataset
    version: str | None
    given: Namespace

    def as_record(self, kind: type[_R], **values: Any) -> _R:
        """Return the words as what management takes; raises `UsageError` with every wrong one."""
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            raise UsageError("cannot read the command's arguments", validation_problems(error)) from error


Action = Callable[[Asked], Answer]


def command(arguments: Sequence[str]) -> int:
    """List, compare, name, split, drop from, roll back and collect the versions of a dataset."""
    given = _parser().parse_args(list(arguments))
    reference = parse_reference(given.dataset)
    if reference.version is not None and not given.takes_version:
        message = f"expected ROOT/DATASET without a version, got {given.dataset!r}"
        repair = "to refuse where another version is the newest, write --expect N"
        raise UsageError(
            "cannot read the command's arguments",
            [Problem(where="dataset", kind="usage", message=message, repair=repair)],
        )
    dataset = Dataset.open(open_door(reference.root), reference.dataset)
    version = None if reference.version is None else str(reference.version)
    action: Action = given.action
    answer = action(Asked(dataset, version, given))
    print(canonical_json(answer.data).decode() if given.json else answer.words)  # noqa: T201
    return 0


def _list(asked: Asked) -> Answer:
    found = list(management.versions(asked.dataset, asked.given.limit))
    return Answer([facts.model_dump(mode="json") for facts in found], tables.of_versions(found))


def _show(asked: Asked) -> Answer:
    record = management.version_of(asked.dataset, asked.version or NEWEST)
    facts = management.facts_of(asked.dataset, record)
    snapshot = asked.dataset.snapshot(record.number)
    shares = [(rule.name, management.shares_of(snapshot, rule)) for rule in record.splits]
    data = {name: [share.model_dump(mode="json") for share in found] for name, found in shares}
    words = tables.of_version(asked.dataset.name, facts, shares)
    return Answer({**facts.model_dump(mode="json"), "shares": data}, words)


def _name(asked: Asked) -> Answer:
    if asked.given.name is None:
        names = management.names(asked.dataset)
        return Answer(names.model_dump(mode="json"), tables.of_names(names))
    change = asked.as_record(NameChange, name=asked.given.name, version=asked.version)
    found = management.name(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_name(found))


def _split(asked: Asked) -> Answer:
    given = asked.given
    shares = [{"split": name, "share": share} for name, share in given.split]
    change = asked.as_record(
        SplitChange, rule=given.rule, seed=given.seed, shares=shares, only=given.only, **_trial(given)
    )
    found = management.split(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_split(found))


def _drop(asked: Asked) -> Answer:
    given = asked.given
    ids = [*given.id, *(one for file in given.ids for one in _ids_of(file))]
    change = asked.as_record(
        DropChange,
        sample_ids=ids if given.id or given.ids else None,
        conversation_ids=given.conversation or None,
        shorter_than=given.shorter_than,
        **_trial(given),
    )
    found = management.drop(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_drop(found))


def _rollback(asked: Asked) -> Answer:
    if asked.version is None:
        message = f"expected the version to go back to, got {asked.given.dataset!r}"
        repair = "write it as ROOT/DATASET@3"
        problem = Problem(where="dataset", kind="usage", message=message, repair=repair)
        raise UsageError("cannot read the command's arguments", [problem])
    change = asked.as_record(RollbackChange, version=asked.version, **_trial(asked.given))
    found = management.rollback(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_rollback(found))


def _compare(asked: Asked) -> Answer:
    given = asked.given
    pages = comparison.Pages(given.limit, given.added_cursor, given.removed_cursor)
    found = comparison.compare(asked.dataset, given.first, given.second, pages)
    return Answer(found.model_dump(mode="json"), tables.of_comparison(found))


def _condemn(asked: Asked) -> Answer:
    given = asked.given
    change = asked.as_record(
        CondemnChange, keep_versions=given.keep_versions, **_collecting(given), **_trial(given)
    )
    found = management.gc_condemn(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_collected(found))


def _sweep(asked: Asked) -> Answer:
    change = asked.as_record(SweepChange, dry_run=asked.given.dry_run, **_collecting(asked.given))
    found = management.gc_sweep(asked.dataset, change)
    return Answer(found.model_dump(mode="json"), tables.of_collected(found))


def _trial(given: Namespace) -> dict[str, object]:
    return {"expected_version": given.expect, "dry_run": given.dry_run}


def _collecting(given: Namespace) -> dict[str, object]:
    return {"grace_seconds": given.grace, "keep_named": not given.named_too}


def share(text: str) -> tuple[str, float]:
    """Return the split and its share that `train=0.9` is.

    >>> share("train=0.9")
    ('train', 0.9)
    """
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError as error:
        raise ArgumentTypeError(f"expected SPLIT=SHARE as train=0.9, got {text!r}") from error


def grace(text: str) -> int:
    """Return the seconds that `7d`, `12h`, `30m`, `90s` or `0` is.

    >>> grace("7d"), grace("0")
    (604800, 0)
    """
    match = _GRACE.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"expected a time as 7d, 12h, 30m, 90s or 0, got {text!r}")
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match[1] else 0


def _ids_of(file: str) -> list[str]:
    """Return the sample ids of a file, one a line; `-` is standard input."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = Problem(where="--ids", kind="usage", message=f"expected a file of ids, got: {error}")
        raise UsageError("cannot read the command's arguments", [problem]) from error
    return text.split()


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=command.__doc__)
    actions = parser.add_subparsers(required=True, metavar="list|show|name|split|drop|rollback|compare|gc")
    listing = _action(actions, "list", _list, "list versions, the newest first")
    listing.add_argument("--limit", type=at_least_one, default=20, metavar="N", help="(default: 20)")
    _action(actions, "show", _show, "what a version holds, and what falls in each split", takes_version=True)
    naming = _action(
        actions, "name", _name, "name a version, for ever; without a name, list them", takes_version=True
    )
    naming.add_argument("name", nargs="?", metavar="NAME", help="as paper-v1")
    split = _change(actions, "split", _split, "set a split rule: which conversations are held out")
    split.add_argument("--rule", default="default", metavar="NAME", help="its name (default: default)")
    split.add_argument("--seed", type=int, default=0, metavar="S", help="another seed, another choice")
    split.add_argument(
        "--split",
        type=share,
        action="append",
        required=True,
        metavar="SPLIT=SHARE",
        help="as train=0.9; repeated",
    )
    split.add_argument("--only", action="store_true", help="remove every other rule")
    drop = _change(actions, "drop", _drop, "leave samples out of the next version")
    drop.add_argument("--id", action="append", default=[], metavar="ID", help="a sample's id; repeated")
    drop.add_argument(
        "--ids", action="append", default=[], metavar="FILE", help="ids, one a line; - is stdin"
    )
    drop.add_argument("--conversation", action="append", default=[], metavar="ID", help="all of its samples")
    drop.add_argument("--shorter-than", type=at_least_one, metavar="N", help="all of fewer than N tokens")
    _change(actions, "rollback", _rollback, "list again what an older version lists", takes_version=True)
    _add_compare(actions)
    _add_gc(actions)
    return parser


def _add_compare(actions: Any) -> None:
    compare = _action(actions, "compare", _compare, "compare two versions: numbers, names or latest")
    compare.add_argument("first", metavar="FROM")
    compare.add_argument("second", metavar="TO", nargs="?", default=NEWEST, help="(default: latest)")
    compare.add_argument("--limit", type=int, default=10, metavar="N", help="ids listed (default: 10)")
    compare.add_argument("--added-cursor", metavar="ID", help=argparse.SUPPRESS)
    compare.add_argument("--removed-cursor", metavar="ID", help=argparse.SUPPRESS)


def _add_gc(actions: Any) -> None:
    text = "collect garbage: condemn parts, and after a grace period sweep their bytes"
    steps = actions.add_parser("gc", prog=f"{PROG} gc", help=text, description=text).add_subparsers(
        required=True, metavar="condemn|sweep"
    )
    condemn = _change(steps, "condemn", _condemn, "condemn the parts that no kept version needs", prog="gc ")
    condemn.add_argument(
        "--keep-versions", type=at_least_one, required=True, metavar="N", help="keep what the newest N need"
    )
    sweep = _action(steps, "sweep", _sweep, "remove condemned parts; this cannot be undone", prog="gc ")
    sweep.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    for step, what in ((condemn, "leave parts without a version"), (sweep, "leave parts condemned")):
        step.add_argument("--grace", type=grace, default="7d", metavar="7d", help=f"{what} since then alone")
        step.add_argument("--named-too", action="store_true", help="versions that have a name as well")


def _action(
    actions: Any, name: str, action: Action, text: str, *, takes_version: bool = False, prog: str = ""
) -> Parser:
    parser: Parser = actions.add_parser(name, prog=f"{PROG} {prog}{name}", help=text, description=text)
    parser.set_defaults(action=action, takes_version=takes_version)
    parser.add_argument("dataset", metavar="ROOT/DATASET" + ("[@VERSION]" if takes_version else ""))
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _change(
    actions: Any, name: str, action: Action, text: str, *, takes_version: bool = False, prog: str = ""
) -> Parser:
    parser = _action(actions, name, action, text, takes_version=takes_version, prog=prog)
    parser.add_argument(
        "--expect", type=at_least_one, metavar="N", help="refuse unless N is the newest version"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be, and change nothing")
    return parser
