"""An S3 server on the loopback for tests: moto, in a process that ends with the tests."""

import http.client
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

SECONDS_TO_START = 30.0

needs_moto = pytest.mark.skipif(
    find_spec("moto") is None or find_spec("flask") is None,
    reason="no S3 server to test against: install moto[server]",
)


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run an S3 server; yield the environment variables by which a client finds it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        process.terminate()
        process.wait(10)


def new_bucket(environment: dict[str, str]) -> str:
    """Make a bucket and return its name."""
    name = f"tests-{uuid.uuid4().hex[:12]}"
    connection = http.client.HTTPConnection(
        environment["AWS_ENDPOINT_URL"].removeprefix("http://"), timeout=10
    )
    try:
        connection.request("PUT", f"/{name}", body=b"")
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"no bucket: {response.status} {response.read()!r}")
    finally:
        connection.close()
    return name


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"the S3 server ended with {process.returncode}") from None
            time.sleep(0.05)
    raise RuntimeError(f"no S3 server within {SECONDS_TO_START} s")
