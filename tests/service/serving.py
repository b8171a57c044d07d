"""Small datasets, and the service over them: in the process, or as a real server on a free port."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.schema import Schema
from service.app import create_app
from service.edge.connection import Connection, give_up_stalled
from service.settings import Settings
from tests.builders import tiny_schema
from tests.datagen.store.real_parts import commit_samples, samples_of

LENGTHS = (1, 63, 64, 65, 130, 200)


def make_dataset(
    root: Path,
    name: str = "demo",
    lengths: Sequence[int] = LENGTHS,
    schema: Schema | None = None,
    seed: int = 0,
) -> list[SampleData]:
    """Commit a part of random samples, one a length, and return them as they were written.

    Called again it commits another version; `seed` should then be another.
    """
    schema = schema or tiny_schema()
    samples = samples_of(schema, lengths, seed)
    dataset = Dataset.create(open_door(root), name, schema, exist_ok=True)
    commit_samples(dataset, schema, samples)
    return samples


def settings_of(root: Path | str, **given: Any) -> Settings:
    """Return settings for a root, untouched by the environment."""
    return Settings.model_validate({"root": str(root), "port": 0, **given})


@contextmanager
def serving(root: Path | str, app: FastAPI | None = None, **given: Any) -> Iterator[str]:
    """Run a real server in a thread, and give its URL."""
    app = app or create_app(settings_of(root, **given))
    config = uvicorn.Config(
        app, loop="uvloop", http=Connection, ws="none", lifespan="on", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        give_up_stalled(listening)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not stop"


@contextmanager
def client_of(root: Path | str, **given: Any) -> Iterator[httpx.Client]:
    """Give a client of a real server over `root`; it follows no redirect by itself."""
    with serving(root, **given) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client
