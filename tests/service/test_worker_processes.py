"""Several processes behind one port share the key file: what is revoked is refused by each of them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx

from service.access.keys import KeyFile
from tests.service.serving import make_dataset

N_ASKED = 24


@contextmanager
def two_processes(root: Path, keys: Path) -> Iterator[str]:
    words = ["--root", str(root), "--port", "0", "--workers", "2", "--keys", str(keys)]
    started = [sys.executable, "-m", "service", *words]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            yield said.split(" at ", 1)[1].split()[0]
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()


def statuses(url: str, key: str) -> set[int]:
    """Ask again and again by new connections, so that each process is met."""
    headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        return {client.get("/v1/datasets").status_code for _ in range(N_ASKED)}


def test_a_change_of_the_keys_is_heeded_by_each(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_dataset(root, lengths=(3,))
    file = KeyFile(tmp_path / "keys.json")
    first = file.create("first", "read")
    with two_processes(root, file.path) as url:
        assert statuses(url, first.written) == {200}
        second = file.create("second", "read")
        expired = file.create("expired", "admin", lives=timedelta(seconds=-1))
        assert statuses(url, second.written) == {200}
        assert statuses(url, expired.written) == {401}
        file.revoke(first.key.id)
        assert statuses(url, first.written) == {401}
        assert statuses(url, second.written) == {200}
