"""`strata serve` as people start it: a process, its one line, and its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest

from datagen.store import bucket_reach
from schemas.command import guarded
from service.commands.serve import command
from tests.service.serving import make_dataset

PATIENCE_SECONDS = 60
N_ASKED = 20


class Started(NamedTuple):
    process: "subprocess.Popen[str]"
    line: str

    @property
    def url(self) -> str:
        found = re.search(r"http://\S+", self.line)
        assert found, self.line
        return found[0]

    def stop(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out, err


@contextmanager
def started(*words: str) -> Iterator[Started]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "service", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=kept,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate(timeout=PATIENCE_SECONDS)[1]
        yield Started(process, line)
    finally:
        if process.poll() is None:
            for each in psutil.Process(process.pid).children(recursive=True):
                each.kill()
            process.kill()
            process.communicate(timeout=PATIENCE_SECONDS)


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    return root


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_it_says_where_it_serves_and_ends_well(root: Path, number: int) -> None:
    with started("--root", str(root)) as service:
        assert service.line.startswith(f"strata: serving {root} at http://127.0.0.1:")
        assert f"docs at {service.url}/docs; no keys: this machine may do everything" in service.line
        assert (
            httpx.get(f"{service.url}/v1/datasets", timeout=PATIENCE_SECONDS).json()["datasets"][0]["name"]
            == "demo"
        )
        assert httpx.get(f"{service.url}/docs", timeout=PATIENCE_SECONDS).status_code == 200
        code, out, err = service.stop(number)
    assert (code, out) == (0, "")
    said = [json.loads(line) for line in err.splitlines()]
    assert [each["path"] for each in said] == ["/v1/datasets", "/docs"]


def test_several_processes_serve_and_count_together(root: Path) -> None:
    with started("--root", str(root), "--workers", "2", "--log-level", "warning") as service:
        assert "2 processes" in service.line
        # A connection each: the kernel gives them to the processes by turns.
        for _ in range(N_ASKED):
            assert httpx.get(f"{service.url}/v1/datasets", timeout=PATIENCE_SECONDS).status_code == 200
        line = f'strata_requests_total{{method="GET",route="/v1/datasets",status="200"}} {N_ASKED}.0\n'
        ends = time.monotonic() + PATIENCE_SECONDS
        # A request is counted when its last byte has gone.
        while line not in (told := httpx.get(f"{service.url}/metrics", timeout=PATIENCE_SECONDS).text):
            assert time.monotonic() < ends, told
            time.sleep(0.05)
        workers = psutil.Process(service.process.pid).children(recursive=True)
        code, out, _ = service.stop(signal.SIGINT)
        assert (code, out) == (0, "")
        ends = time.monotonic() + PATIENCE_SECONDS
        # Python's own tracker of resources ends a moment after the process that it watched.
        while left := [worker for worker in workers if lives(worker)]:
            assert time.monotonic() < ends, left
            time.sleep(0.05)


def test_an_address_that_is_taken_is_a_problem(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert guarded(command, ["--root", str(root), "--port", port, "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["where"] == "port"
    assert problem["message"] == f"expected a free address, got 127.0.0.1 port {port}: address already in use"


@pytest.mark.parametrize(
    ("words", "where", "told"),
    [
        (("--host", "0.0.0.0"), "host", "a service that asks for keys"),
        (("--host", "203.0.113.7", "--anonymous", "read"), "host", "expected a free address"),
        (("--hst", "x"), "--hst", "did you mean --host"),
        (("--port", "x"), "port", "expected a valid integer, got 'x'"),
        (("--config", "missing.toml"), "missing.toml", "no such file"),
    ],
    ids=["open", "not ours", "misspelt", "no number", "no file"],
)
def test_what_cannot_be_served_is_a_problem_and_2(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    where: str,
    told: str,
) -> None:
    monkeypatch.chdir(root)
    assert guarded(command, ["--root", str(root), *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"\n  {where}: " in said.err
    assert told in said.err


def test_a_bucket_that_does_not_answer_is_told_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bucket_reach, "FIRST_SECONDS", 0.1)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    words = ["--root", "s3://bucket/states", "--datasets", "demo", "--port", "0"]
    assert guarded(command, words) == 2
    assert "s3://bucket/states/demo/dataset.json: expected to read here" in capsys.readouterr().err
