"""One client in many threads, in forked children and in spawned ones, as DataLoader workers use it."""

import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from datagen.store.sample_data import SampleData
from service.client.client import Client
from service.client.version import Version
from tests.service.client.misbehaving import answering, misbehaving
from tests.service.client.told import client_of
from tests.service.serving import make_dataset, serving

MODES = pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def samples(root: Path) -> list[SampleData]:
    return make_dataset(root)


@pytest.fixture(scope="module")
def url(root: Path, samples: list[SampleData]) -> Iterator[str]:
    with serving(root) as url:
        yield url


def final_of(version: Version, sample_id: str) -> bytes:
    return version.tensors(sample_id, ["final"]).tensors["final"].tobytes()


@MODES
def test_threads_share_a_client(url: str, samples: list[SampleData], direct: bool) -> None:
    with Client(url, direct=direct) as client, ThreadPoolExecutor(8) as pool:
        version = client.version("demo")
        asked = [sample for sample in samples for _ in range(20)]
        found = pool.map(lambda sample: final_of(version, sample.sample_id), asked)
        assert [*found] == [sample.tensors["final"].tobytes() for sample in asked]
        assert client.session.transport.connections.opened <= 9


@MODES
def test_a_forked_child_opens_its_own_connections_and_leaves_the_parents(
    url: str, samples: list[SampleData], direct: bool
) -> None:
    with Client(url, direct=direct) as client:
        version = client.version("demo")
        final_of(version, samples[0].sample_id)
        (idle,) = client.session.transport.connections._idle()
        ours = idle.sock
        for sample in samples:
            got = in_child(version, sample.sample_id)
            assert got == sample.tensors["final"].tobytes()
            assert final_of(version, sample.sample_id) == got
        assert client.session.transport.connections.opened == 1
        assert idle.sock is ours
        assert isinstance(ours, socket.socket)


def in_child(version: Version, sample_id: str) -> bytes:
    """Return what a forked child fetches, all by itself."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            data = final_of(version, sample_id)
            # The child must not have used what it got from its parent.
            status = 0 if version.session.transport.connections.opened in (0, 1) else 2
            with os.fdopen(writing, "wb") as file:
                file.write(data)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0
    return data


def test_a_fork_while_other_threads_are_fetching_does_not_hang(url: str, samples: list[SampleData]) -> None:
    stop = threading.Event()
    with Client(url, direct=False) as client:
        version = client.version("demo")

        def fetch() -> None:
            while not stop.is_set():
                final_of(version, samples[1].sample_id)

        threads = [threading.Thread(target=fetch) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                assert in_child(version, samples[5].sample_id) == samples[5].tensors["final"].tobytes()
        finally:
            stop.set()
            for thread in threads:
                thread.join(10)


def test_a_spawned_process_is_given_a_version(url: str, samples: list[SampleData]) -> None:
    with Client(url, direct=False) as client:
        version = client.version("demo")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            got = pool.submit(final_of, version, samples[3].sample_id).result(60)
    assert got == samples[3].tensors["final"].tobytes()


def test_idle_connections_that_the_service_closed_are_not_used() -> None:
    answer = answering(200, b'{"datasets": []}')
    with misbehaving([answer]) as server, client_of(server) as client:
        for _ in range(3):
            client.datasets()
        assert server.n_connections == 1
        client.close()
        client.datasets()
        assert server.n_connections == 2


def test_a_connection_closed_under_a_request_is_replaced_without_a_pause() -> None:
    def answer_and_close_later(connection: socket.socket) -> None:
        answering(200, b'{"datasets": []}')(connection)
        # Hears the next request, and hangs up instead of answering: as when a keep-alive ran out just then.
        connection.recv(65536)
        connection.shutdown(socket.SHUT_RDWR)

    answer = answering(200, b'{"datasets": []}')
    with misbehaving([answer_and_close_later, answer]) as server, client_of(server, retries=0) as client:
        for _ in range(3):
            assert client.datasets() == ()
        assert server.n_connections == 2
