"""`strata keys`: make, list and revoke the API keys of a service."""

import json
import re
from argparse import ArgumentTypeError, _SubParsersAction
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schemas.command import Parser
from service.access.caller import EVERY_DATASET, SCOPES
from service.access.keys import Key, KeyFile

PROG = "strata keys"
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_LIVES = re.compile(r"([1-9][0-9]{0,5})([mhd])")


def command(arguments: Sequence[str]) -> int:
    """Make, list and revoke the API keys of a service; a running service heeds a change at once."""
    given = _parser().parse_args(list(arguments))
    file = KeyFile(given.keys)
    if given.action == "create":
        made = file.create(given.name, given.scope, given.dataset or (EVERY_DATASET,), given.expires)
        _say_created(made.key, made.written, given.keys, given.json)
    elif given.action == "revoke":
        _say([file.revoke(given.id)], given.json)
    else:
        _say(file.read().keys, given.json)
    return 0


def lifetime(text: str) -> timedelta | None:
    """Return the time that `30d`, `12h`, `90m` or `never` is.

    >>> lifetime("30d"), lifetime("never")
    (datetime.timedelta(days=30), None)
    """
    if text == "never":
        return None
    match = _LIVES.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"expected a time as 30d, 12h or 90m, or never, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _parser() -> Parser:
    parser = Parser(prog=PROG, description=command.__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="create|list|revoke")
    create = _action(actions, "create", "make a key, and print its secret once")
    create.add_argument("name", help="whose it is, or what for")
    create.add_argument(
        "--scope", choices=SCOPES, default="read", help="each includes those before it (default: read)"
    )
    create.add_argument(
        "--dataset", action="append", metavar="NAME", help="grant this dataset only; may be repeated"
    )
    create.add_argument(
        "--expires", type=lifetime, default=None, metavar="30d|12h|90m|never", help="(default: never)"
    )
    _action(actions, "list", "list the keys; no secret is kept")
    revoke = _action(actions, "revoke", "refuse a key from now on")
    revoke.add_argument("id", help="the key's id, or the beginning of it")
    return parser


def _action(actions: "_SubParsersAction[Parser]", name: str, text: str) -> Parser:
    parser = actions.add_parser(name, prog=f"{PROG} {name}", help=text, description=text)
    parser.add_argument("--keys", type=Path, required=True, metavar="FILE", help="the key file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _say_created(key: Key, written: str, path: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**_data(key), "key": written}))  # noqa: T201
        return
    until = "never expires" if key.expires_at is None else f"expires {_time(key.expires_at)}"
    datasets = "every dataset" if EVERY_DATASET in key.datasets else ", ".join(key.datasets)
    print(written)  # noqa: T201
    print(f"\n{key.name}: {key.scope} of {datasets}, {until}")  # noqa: T201
    print("the line above is shown this once; send it as `Authorization: Bearer ...`")  # noqa: T201
    print(f"serve with it: strata serve --keys {path}")  # noqa: T201


def _say(keys: Sequence[Key], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_data(key) for key in keys]))  # noqa: T201
        return
    for key in keys:
        until = "never" if key.expires_at is None else _time(key.expires_at)
        print(  # noqa: T201
            f"{key.id}  {key.state(_now()):<7}  {key.scope:<6}  expires {until:<16}  "
            f"{','.join(key.datasets)}  {key.name}"
        )


def _data(key: Key) -> dict[str, object]:
    """Return what is told of a key: all but the hash of its secret."""
    return {**key.model_dump(mode="json", exclude={"sha256"}), "state": key.state(_now())}


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _now() -> datetime:
    return datetime.now(UTC)
