"""An S3 server on the loopback for tests: moto, in a process that ends with the tests."""

import http.client
import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
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
    _ask(environment, "PUT", f"/{name}", b"")
    return name


@contextmanager
def policies(environment: dict[str, str]) -> Iterator[Callable[[Sequence[str]], dict[str, str]]]:
    """Let the server ask who is asking; yield what makes a user who may do these actions, as variables."""
    iam = import_module("boto3").client(
        "iam",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id="tests",
        aws_secret_access_key="tests",
    )

    def user(actions: Sequence[str]) -> dict[str, str]:
        _ask(environment, "POST", "/moto-api/reset-auth", b"inf")
        name = f"tests-{uuid.uuid4().hex[:12]}"
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="allowed", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        _ask(environment, "POST", "/moto-api/reset-auth", b"0")
        return {
            **environment,
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }

    try:
        yield user
    finally:
        _ask(environment, "POST", "/moto-api/reset-auth", b"inf")


def _ask(environment: dict[str, str], method: str, path: str, body: bytes) -> None:
    connection = http.client.HTTPConnection(
        environment["AWS_ENDPOINT_URL"].removeprefix("http://"), timeout=10
    )
    try:
        connection.request(method, path, body=body, headers={"Content-Type": "application/octet-stream"})
        response = connection.getresponse()
        said = response.read()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {said!r}")
    finally:
        connection.close()


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
