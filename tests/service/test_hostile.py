"""What a service meets on an open port: paths that leave the root, absurd numbers, peers that stall or go.

Every refusal is a 4xx with what is wrong, the server goes on, and nothing outside of the root is read.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from fastapi import FastAPI

from datagen.store.sample_data import SampleData
from service.app import create_app
from service.edge import connection
from tests.builders import tiny_schema, tiny_target
from tests.service.serving import make_dataset, serving, settings_of

VERSION = "/v1/datasets/demo/versions/1"
PATIENCE_SECONDS = 20


class Target(NamedTuple):
    """A server, and what it serves."""

    url: str
    app: FastAPI
    root: Path
    samples: list[SampleData]

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def tensors(self) -> str:
        return f"{VERSION}/samples/{self.samples[-1].sample_id}/tensors"

    def connect(self) -> socket.socket:
        host, _, port = self.host.partition(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)

    def say(self, line: str, *headers: str) -> tuple[int, str]:
        """Send a request line as it is, and return the status and the whole answer."""
        with self.connect() as peer:
            head = [line, f"Host: {self.host}", "Connection: close", *headers]
            peer.sendall("\r\n".join([*head, "", ""]).encode("latin-1"))
            answer = b"".join(iter(lambda: peer.recv(65536), b"")).decode("latin-1")
        return int(answer.split(" ", 2)[1]), answer

    def is_well(self) -> bool:
        return httpx.get(f"{self.url}{self.tensors}").status_code == 200


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server whose root has another dataset beside it, which nobody may reach."""
    above = tmp_path_factory.mktemp("above")
    make_dataset(above / "outside", "secret", lengths=(5,), seed=50)
    samples = make_dataset(above / "root")
    app = create_app(settings_of(above / "root"))
    with serving(above / "root", app) as url:
        yield Target(url, app, above / "root", samples)


def until(true: Callable[[], bool]) -> None:
    """Wait until it is so; fail when it never is."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


NAMES = {
    "dots": "..",
    "encoded dots": "%2e%2e",
    "dots and an encoded slash": "..%2foutside%2fsecret",
    "all encoded": "%2e%2e%2foutside%2fsecret",
    "encoded twice": "%252e%252e%252foutside%252fsecret",
    "a backslash": "..%5coutside%5csecret",
    "dots and slashes": "../outside/secret",
    "absolute": "%2fetc%2fpasswd",
    "two slashes": "/etc/passwd",
    "NUL": "demo%00",
    "NUL alone": "%00",
    "a line break": "demo%0d%0aX-Evil:%201",
    "a dot": ".",
    "nothing": "",
    "long": "a" * 5000,
    "not UTF-8": "%ff%fe",
    "a space": "demo%20",
    "upper case": "DEMO",
    "wide digits": "%d9%a1",
    "hidden": ".demo",
    "a flag": "--root",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["dataset", "version", "sample"])
def test_no_name_leaves_the_root(target: Target, place: str, name: str) -> None:
    written = NAMES[name]
    paths = {
        "dataset": [f"/v1/datasets/{written}", f"/v1/datasets/{written}/versions/1/stats"],
        "version": [f"/v1/datasets/demo/versions/{written}", f"/v1/datasets/demo/versions/{written}/stats"],
        "sample": [f"{VERSION}/samples/{written}/tensors", f"{VERSION}/samples/{written}/locations"],
    }
    for path in paths[place]:
        status, answer = target.say(f"GET {path} HTTP/1.1")
        assert 400 <= status < 500, answer
        assert "x-evil" not in answer.lower().split("\r\n\r\n")[0]
        assert "outside" not in answer.replace(written, "").lower() or "outside" in written
        assert "Traceback" not in answer
        assert str(target.root) not in answer


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(1000)), 416),
        ("bytes=0-0,0-0", 416),
        ("bytes=" + "9" * 19 + "-", 416),
        ("bytes=" + "9" * 5000 + "-", 416),
        ("bytes=5-2", 416),
        ("bytes=-0", 416),
        ("bytes=--5", 416),
        ("bytes=0x10-", 416),
        ("bytes=\xb2-", 416),
        ("bytes=0-" + "9" * 18, 206),
        ("bytes=-" + "9" * 18, 206),
        ("lines=0-5", 200),
    ],
    ids=lambda given: str(given)[:24],
)
def test_ranges(target: Target, given: str, status: int) -> None:
    answered, answer = target.say(f"GET {target.tensors} HTTP/1.1", f"Range: {given}")
    assert answered == status
    if status == 416:
        assert "content-range: bytes */" in answer.lower()


ABSURD = {
    "limit": f"{VERSION}/samples?limit=1000000000",
    "a limit of many digits": f"{VERSION}/samples?limit={'9' * 4000}",
    "a limit below": f"{VERSION}/samples?limit=-1",
    "no limit": f"{VERSION}/samples?limit=",
    "a cursor of nothing": f"{VERSION}/samples?cursor=%00",
    "a long cursor": f"{VERSION}/samples?cursor={'A' * 8000}",
    "a cursor of another kind": f"{VERSION}/samples?cursor=eyJhIjoxfQ==",
    "count": f"{VERSION}/order?seed=0&epoch=0&position=0&count=1000000000000",
    "seed": f"{VERSION}/order?seed={2**70}&epoch=0",
    "epoch": f"{VERSION}/order?seed=0&epoch={2**70}",
    "position": f"{VERSION}/order?seed=0&epoch=0&position=-1",
    "a split that is a path": f"{VERSION}/samples?split=../../etc",
    "many names": f"{VERSION}/samples/{{sample}}/tensors?names={','.join(f'x{n}' for n in range(5000))}",
    "a window of many digits": f"{VERSION}/samples/{{sample}}/tensors?tokens=0:{'9' * 4000}",
    "a window backwards": f"{VERSION}/samples/{{sample}}/tensors?tokens=5:2",
    "a format": f"{VERSION}/samples/{{sample}}/tensors?format=pickle",
}


@pytest.mark.parametrize("asked", ABSURD)
def test_absurd_questions(target: Target, asked: str) -> None:
    path = ABSURD[asked].replace("{sample}", target.samples[-1].sample_id)
    response = httpx.get(f"{target.url}{path}")
    assert 400 <= response.status_code < 500, response.text[:300]
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"]
    assert len(response.content) < 2_000_000


BODIES: dict[str, tuple[bytes, set[int]]] = {
    "more than a body may hold": (b'{"ids": ["' + b"0" * (5 << 20) + b'"]}', {413}),
    "more ids than a batch": (json.dumps({"ids": ["0" * 64] * 5000}).encode(), {413}),
    "deep": (b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {422}),
    "not JSON": (b"\x80\x04pickle", {422}),
    "not UTF-8": (b'{"ids": ["\xff"]}', {422}),
    "NaN": (b'{"ids": [NaN]}', {422}),
    "a long number": (b'{"ids": [' + b"9" * 100_000 + b"]}", {422}),
    "nothing": (b"", {422}),
    "no ids": (b'{"ids": []}', {422}),
    "ids that are paths": (b'{"ids": ["../../etc/passwd"]}', {422}),
    "unknown keys": (b'{"ids": ["' + b"0" * 64 + b'"], "root": "/etc"}', {422}),
    "half a surrogate": (b'{"ids": ["\\ud800"]}', {422}),
}


@pytest.mark.parametrize("given", BODIES)
@pytest.mark.parametrize("place", ["batch", "locations"])
def test_bodies(target: Target, place: str, given: str) -> None:
    body, statuses = BODIES[given]
    with httpx.Client(timeout=PATIENCE_SECONDS) as client:
        response = client.post(
            f"{target.url}{VERSION}/{place}", content=body, headers={"content-type": "application/json"}
        )
    assert response.status_code in statuses, response.text[:300]
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < 2_000_000
    assert target.is_well()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "POST"])
def test_wrong_methods(target: Target, method: str) -> None:
    for path in ("/v1/datasets", f"{VERSION}/stats", target.tensors, "/healthz"):
        status, answer = target.say(f"{method} {path} HTTP/1.1", "Content-Length: 0")
        assert status == 405
        assert "allow: " in answer.lower()
        assert "application/problem+json" in answer


@pytest.mark.parametrize(
    "line", ["BREW /v1/datasets HTTP/1.1", "GET", "GET  /", "\x16\x03\x01\x02", "GET /v1/datasets HTTP/9.9"]
)
def test_what_is_no_request(target: Target, line: str) -> None:
    status, _ = target.say(line)
    assert 400 <= status < 500
    assert target.is_well()


AMBIGUOUS = {
    "two lengths": ("Content-Length: 5", "Content-Length: 6"),
    "a length and chunks": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "a negative length": ("Content-Length: -5",),
    "a length that is no number": ("Content-Length: 5x",),
    "a length of many digits": (f"Content-Length: {'9' * 40}",),
    "an unknown encoding": ("Transfer-Encoding: gzip, identity",),
}


@pytest.mark.parametrize("headers", AMBIGUOUS)
def test_no_body_whose_end_is_a_matter_of_opinion(target: Target, headers: str) -> None:
    """What a proxy in front could read otherwise would let one request hide in another."""
    status, _ = target.say(f"POST {VERSION}/batch HTTP/1.1", *AMBIGUOUS[headers])
    assert 400 <= status < 500
    assert target.is_well()


def test_a_head_that_does_not_end(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    peers = [target.connect() for _ in range(20)]
    for peer in peers[1:]:
        peer.sendall(b"GET /v1/datasets HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    for peer in peers:
        assert peer.recv(100).startswith(b"HTTP/1.1 408")
        assert peer.recv(100) == b""
        peer.close()
    assert target.is_well()


def test_a_head_of_any_size(target: Target) -> None:
    with target.connect() as peer:
        peer.sendall(b"GET /v1/datasets HTTP/1.1\r\n")
        got = b""
        try:
            for n in range(10_000):
                peer.sendall(b"X-%d: %s\r\n" % (n, b"a" * 1000))
        except ConnectionError:
            pass  # given up, in the middle of it
        else:
            pytest.fail("ten megabytes of head were taken")
        try:
            got = peer.recv(100)
        except ConnectionError:
            got = b""  # the reset took the answer with it
        assert got == b"" or got.startswith(b"HTTP/1.1 431")
    assert target.is_well()


def test_a_second_head_that_is_late_does_not_cut_the_first_answer(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests in one go, the second one unfinished: the first is answered whole."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    first = f"GET {target.tensors} HTTP/1.1\r\nHost: {target.host}\r\n\r\n"
    expected = httpx.get(f"{target.url}{target.tensors}").content
    with target.connect() as peer:
        peer.sendall(f"{first}GET /v1/data".encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    assert expected in answer


def test_clients_that_vanish(target: Target) -> None:
    """In the middle of a head, of a body that was announced, of the answer."""
    post = f"POST {VERSION}/batch HTTP/1.1\r\nHost: {target.host}\r\n"
    beginnings = [
        "GET /v1/data",
        f"{post}Content-Length: 999\r\n\r\n{{",
        f"{post}Transfer-Encoding: chunked\r\n\r\n5\r\n{{",
        f"GET {target.tensors} HTTP/1.1\r\nHost: {target.host}\r\n\r\n",
    ]
    for beginning in beginnings * 5:
        with target.connect() as peer:
            peer.sendall(beginning.encode())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
    limits = target.app.state.service.limits
    until(lambda: limits.in_flight_bytes == 0)
    assert target.is_well()


N_SLOW = 10
SLOW_BYTES = 40 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server of one sample of 40 MB."""
    root = tmp_path_factory.mktemp("large")
    schema = tiny_schema(("final",), "float32", tiny_target(hidden_size=1024))
    samples = make_dataset(root, lengths=(SLOW_BYTES // 4096,), schema=schema)
    app = create_app(settings_of(root))
    with serving(root, app) as url:
        yield Target(url, app, root, samples)


def test_slow_readers_hold_little(large: Target) -> None:
    """Ten that ask for 40 MB and read nothing: a few pieces each are held, not 400 MB; gone, nothing is."""
    assert large.is_well()
    process, limits = psutil.Process(), large.app.state.service.limits
    before = process.memory_info().rss
    peers = [large.connect() for _ in range(N_SLOW)]
    for peer in peers:
        peer.sendall(f"GET {large.tensors} HTTP/1.1\r\nHost: {large.host}\r\n\r\n".encode())
    for peer in peers:
        assert peer.recv(15) == b"HTTP/1.1 200 OK"
    until(lambda: limits.in_flight_bytes > 0)
    time.sleep(0.3)
    assert limits.in_flight_bytes <= N_SLOW * (4 << 20)
    assert process.memory_info().rss - before < N_SLOW * SLOW_BYTES / 2
    assert large.is_well()
    for peer in peers:
        peer.close()
    until(lambda: limits.in_flight_bytes == 0)


def test_more_slow_readers_than_there_is_room_for(large: Target, tmp_path: Path) -> None:
    """Over the bytes in flight, the next is told to come again; the others are served."""
    app = create_app(settings_of(large.root, max_bytes_in_flight=8 << 20))
    with serving(large.root, app) as url:
        crowded = Target(url, app, large.root, large.samples)
        peers = [crowded.connect() for _ in range(4)]
        statuses = []
        for peer in peers:
            peer.sendall(f"GET {crowded.tensors} HTTP/1.1\r\nHost: {crowded.host}\r\n\r\n".encode())
            statuses.append(int(peer.recv(15).split(b" ")[1]))
        assert set(statuses) == {200, 429}
        refused = httpx.get(f"{url}{crowded.tensors}")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "ask again" in refused.json()["problems"][0]["repair"]
        for peer in peers:
            peer.close()
        until(lambda: app.state.service.limits.in_flight_bytes == 0)
        assert crowded.is_well()


def test_the_kernel_gives_up_who_reads_nothing(large: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("TCP_USER_TIMEOUT is Linux's")
    monkeypatch.setattr(connection, "STALL_SECONDS", 1)
    app = create_app(settings_of(large.root))
    with serving(large.root, app) as url:
        stalled = Target(url, app, large.root, large.samples)
        limits = app.state.service.limits
        with stalled.connect() as peer:
            peer.sendall(f"GET {stalled.tensors} HTTP/1.1\r\nHost: {stalled.host}\r\n\r\n".encode())
            until(lambda: limits.in_flight_bytes > 0)
            until(lambda: limits.in_flight_bytes == 0)
