"""`strata serve`: bind, say where, serve until told to stop."""

import errno
import os
import shutil
import signal
import socket
import sys
import tempfile
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn
from uvicorn.supervisors import Multiprocess

from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.layout import DATASET
from datagen.store.opening import open_door
from schemas.command import Parser
from schemas.problem import Problem
from service.app import create_app
from service.edge.connection import Connection, give_up_stalled
from service.edge.request_log import log_config
from service.errors import SettingsError
from service.metrics import FOLDER_VARIABLE
from service.settings import ENV_PREFIX, Settings, load_settings

PROG = "strata serve"
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 10


def command(arguments: Sequence[str]) -> int:
    """Serve the datasets of a root over HTTP."""
    known, strays = _parser().parse_known_args(list(arguments))
    given = vars(known)
    file = given.pop("config", None)
    given.pop("json", None)
    settings = load_settings(given, file, os.environ, [word for word in strays if word.startswith("-")])
    _ask_bucket(settings)
    with _listening(settings) as listening, _stopping_well():
        url = _url(settings, listening.getsockname()[1])
        if settings.workers == 1:
            _Server(_config(settings), _words(settings, url)).run([listening])
        else:
            _run_many(settings, listening, _words(settings, url))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description=(
            "Serve the datasets of a root over HTTP. Every setting is a flag, an environment variable "
            f"({ENV_PREFIX}ROOT) and a key of the TOML file; a flag wins over a variable, and that over the "
            "file."
        ),
        allow_abbrev=False,
        argument_default=SUPPRESS,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    parser.add_argument("--json", action="store_true", help="say what is wrong as one JSON object")
    for name, field in Settings.model_fields.items():
        default = "" if field.is_required() or field.default is None else f" (default {field.default})"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar="VALUE",
            help=f"{field.description}{default}",
        )
    return parser


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, words: str) -> None:
        super().__init__(config)
        self._words = words

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _say(self._words)


def _run_many(settings: Settings, listening: socket.socket, words: str) -> None:
    """Run several processes at one socket; they count in files of one folder."""
    create_app(settings)  # what is wrong with it is told here, once, and not by each process
    folder = tempfile.mkdtemp(prefix="strata-metrics-")
    os.environ[FOLDER_VARIABLE] = folder
    config = _config(settings)
    try:
        _say(words)
        Multiprocess(config, [listening]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(settings: Settings) -> uvicorn.Config:
    # A partial, since a process that is spawned makes the application anew.
    return uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        workers=settings.workers,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=log_config(settings.log_level),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _ask_bucket(settings: Settings) -> None:
    """Raise `DoorError` where a bucket does not answer, or refuses: told here, not to each caller.

    A dataset that is not there yet may be made while it is served.
    """
    door = open_door(settings.root)
    if door.local_path(DATASET) is None:
        for name in settings.datasets or ():
            with suppress(NotFoundError):
                Dataset.open(door, name)


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Bind; raises `SettingsError` when the address is taken, or not one of this machine."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        where, repair = "host", "give an address of this machine with --host"
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            where, repair = (
                "port",
                "stop what listens there, or give another with --port (0: any that is free)",
            )
        got = os.strerror(error.errno).lower() if error.errno else str(error)
        message = f"expected a free address, got {settings.host} port {settings.port}: {got}"
        raise SettingsError(
            "the service cannot be started",
            [Problem(where=where, kind="address", message=message, repair=repair)],
        ) from error
    give_up_stalled(listening)
    with listening:
        yield listening


@contextmanager
def _stopping_well() -> Iterator[None]:
    """Let a signal, which the server raises again when it has ended, end nothing more."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    except KeyboardInterrupt:
        pass  # the server has ended already, in good order
    finally:
        signal.signal(signal.SIGTERM, before)


def _url(settings: Settings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"


def _words(settings: Settings, url: str) -> str:
    if settings.keys is not None:
        who = f"keys of {settings.keys}"
    elif settings.anonymous is not None:
        who = f"no keys: anyone may {settings.anonymous}"
    else:
        who = "no keys: this machine may do everything"
    many = f", {settings.workers} processes" if settings.workers > 1 else ""
    return f"strata: serving {settings.root} at {url} (docs at {url}/docs; {who}{many})"


def _say(words: str) -> None:
    print(words, flush=True)  # noqa: T201
    sys.stdout.flush()
