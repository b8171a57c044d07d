"""What the client makes of answers that are not right: an error by its name, and nothing of them is used."""

import json
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.store.checksum import crc32c
from service.client import errors
from service.client.client import Client
from service.wire.frame import Entry, build_frame
from tests.builders import tiny_schema
from tests.service.client.misbehaving import (
    Action,
    answer_bytes,
    answering,
    misbehaving,
    schema_answer,
    sending,
    version_headers,
)
from tests.service.client.told import (
    JSON,
    RIGHT,
    RIGHT_BYTES,
    SAMPLE,
    SCHEMA,
    body_of,
    client_of,
    refused,
    sent,
    version_of,
)


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        place: Any = header
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "answer",
    [
        sent(body_of(_set("layer2", "data_offsets", to=[288, 1408]))),
        sent(body_of(_set("layer2", "data_offsets", to=[0, 1120]))),
        sent(body_of(_set("layer2", "data_offsets", 1, to=2**60))),
        sent(body_of(_set("layer2", "shape", to=[70, 9]))),
        sent(body_of(_set("layer2", "shape", to=[35, 16]))),
        sent(body_of(_set("layer2", "dtype", to="F16"))),
        sent(body_of(_set("layer2", "dtype", to="BF17"))),
        sent(body_of(lambda header: header.update(extra=header.pop("layer2")))),
        sent(body_of(_set("__metadata__", to={}))),
        sent(body_of(tail=b"\0" * 8)),
        sent(b"\xff" * 8 + body_of()[8:]),
        sent(b"\0" * 8),
        sent((2**20).to_bytes(8, "little") + body_of()[8:]),
        sent(body_of(), Strata_Version="2"),
        sent(body_of(), Strata_Dataset="other"),
        sent(body_of(), Strata_Schema="0" * 64),
        sent(body_of(), Content_Encoding="gzip"),
        sent(body_of(), Content_Length=str(len(body_of()) + 8)),
        answering(
            200,
            body_of(),
            {**version_headers(SCHEMA), "Content-Length": f"{len(body_of())}\r\nContent-Length: 13"},
        ),
        sending(b"SSH-2.0-OpenSSH_9.6\r\n"),
        sending(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"),
        sending(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"),
    ],
    ids=[
        "offsets with a hole",
        "offsets that overlap",
        "offsets beyond",
        "shape against offsets",
        "shape",
        "dtype",
        "unknown dtype",
        "another name",
        "no checksums",
        "more bytes than the header says",
        "head too long",
        "no head",
        "head beyond the body",
        "another version",
        "another dataset",
        "another schema",
        "encoded",
        "long length",
        "two lengths",
        "no HTTP",
        "a long header line",
        "many headers",
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(answer: Action) -> None:
    _, server = refused([answer, RIGHT], errors.ProtocolError)
    assert len(server.heard) == 1


@pytest.mark.parametrize("length", ["", "Content-Length: -5\r\n", "Content-Length: many\r\n"])
def test_a_body_that_says_no_length_is_never_taken_for_whole(length: str) -> None:
    answer = RIGHT_BYTES.replace(f"Content-Length: {len(body_of())}\r\n".encode(), length.encode())
    _, server = refused([sending(answer)], errors.ProtocolError)
    assert len(server.heard) == 3


def test_a_body_in_chunks_is_refused() -> None:
    head = answer_bytes(200, b"", version_headers(SCHEMA))
    head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    refused([sending(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body_of()), body_of()))], errors.ProtocolError)


@pytest.mark.parametrize("n_bytes", [10, 100_000])
def test_bytes_that_nobody_asked_for_are_never_an_answer(n_bytes: int) -> None:
    forged = answer_bytes(200, b'{"datasets": [{"name": "forged", "latest": 1}]}' + b" " * n_bytes)

    def twice(connection: socket.socket) -> None:
        connection.sendall(answer_bytes(200, b'{"datasets": []}') + forged)

    with misbehaving([twice, JSON]) as server, client_of(server) as client:
        assert client.datasets() == ()
        assert [dataset.name for dataset in client.datasets()] == ["demo"]


def test_a_redirect_is_followed_on_the_same_host_with_the_key() -> None:
    moved = answering(307, headers={"Location": "/v1/datasets/demo/versions/3/schema?x=1"})
    with misbehaving([moved, schema_answer(SCHEMA, number=3)]) as server:
        with client_of(server, key="strata_a_b") as client:
            assert client.version("demo").number == 3
        assert server.heard[1].startswith(b"GET /v1/datasets/demo/versions/3/schema?x=1 ")
        assert server.headers(1)["authorization"] == "Bearer strata_a_b"


@pytest.mark.parametrize(
    "location",
    [
        "http://elsewhere.example/v1",
        "//elsewhere.example/",
        "https://127.0.0.1/",
        "http://127.0.0.1:1/",
        "ftp:x",
    ],
)
def test_a_redirect_to_another_host_is_not_followed(location: str) -> None:
    with misbehaving([answering(307, headers={"Location": location})]) as server:
        with (
            client_of(server, key="secret") as client,
            pytest.raises(errors.ProtocolError, match="another host"),
        ):
            client.datasets()
        assert len(server.heard) == 1


def test_redirects_in_a_circle_end() -> None:
    with (
        misbehaving([answering(307, headers={"Location": "/v1/datasets"})]) as server,
        client_of(server) as client,
    ):
        with pytest.raises(errors.ProtocolError, match="redirected more than"):
            client.datasets()
        assert len(server.heard) == 4


def test_json_that_is_no_answer_names_its_fields() -> None:
    wrong = answering(200, b'{"datasets": [{"name": 5, "latest": "1"}]}')
    with (
        misbehaving([wrong]) as server,
        client_of(server) as client,
        pytest.raises(errors.ProtocolError) as caught,
    ):
        client.datasets()
    assert [item.where for item in caught.value.problems] == ["datasets.0.name", "datasets.0.latest"]


def test_a_schema_that_is_not_that_of_its_fingerprint_is_refused() -> None:
    other = tiny_schema(("embed", "final"))
    body = json.dumps({"declared": other.model_dump(mode="json")}).encode()
    with (
        misbehaving([answering(200, body, version_headers(SCHEMA))]) as server,
        client_of(server) as client,
        pytest.raises(errors.ProtocolError, match="fingerprint"),
    ):
        client.schema("demo")


def batch_body(sample_ids: list[str], offsets: list[int]) -> bytes:
    ids = b"".join(bytes.fromhex(sample_id) for sample_id in sample_ids)
    data = {
        "offsets": np.array(offsets, "<i8").tobytes(),
        "sample_ids": ids,
        "layer2": SAMPLE.tensors["layer2"].tobytes(),
    }
    entries = [
        Entry("offsets", "int64", (len(offsets),)),
        Entry("sample_ids", "uint8", (len(sample_ids), 32)),
        Entry("layer2", "bfloat16", (70, 8)),
    ]
    frame = build_frame(entries, {name: crc32c(data[name]) for name in data}, {})
    return frame.head + b"".join(data[entry.name] for entry in frame.entries)


@pytest.mark.parametrize(
    ("sample_ids", "offsets", "fits"),
    [
        (["a" * 64, "b" * 64], [0, 30, 70], True),
        (["b" * 64, "a" * 64], [0, 30, 70], False),
        (["a" * 64, "b" * 64], [1, 30, 70], False),
        (["a" * 64, "b" * 64], [0, 80, 70], False),
        (["a" * 64, "b" * 64], [0, 30, 69], False),
        (["a" * 64, "b" * 64], [0, 70], False),
    ],
    ids=["right", "other order", "late start", "falling", "short", "too few"],
)
def test_the_offsets_of_a_batch_are_checked(sample_ids: list[str], offsets: list[int], fits: bool) -> None:
    with misbehaving([sent(batch_body(sample_ids, offsets))]) as server, client_of(server) as client:
        version = version_of(client)
        if fits:
            rows = version.batch(["a" * 64, "b" * 64], ["layer2"])
            assert [len(each.tensors["layer2"]) for each in rows] == [30, 40]
            stacks = version.stacks(["a" * 64, "b" * 64], ["layer2"], ())
            assert [len(each.states) for each in stacks] == [30, 40]
        else:
            with pytest.raises(errors.ProtocolError):
                version.batch(["a" * 64, "b" * 64], ["layer2"])
            with pytest.raises(errors.ProtocolError):
                version.stacks(["a" * 64, "b" * 64], ["layer2"], ())


@pytest.mark.parametrize(
    "from_the_end", [1, 64 + 1, 64 + 70 * 16 + 1], ids=["sample_ids", "layer2", "offsets"]
)
def test_stacks_that_changed_on_the_way_are_asked_for_once_more(from_the_end: int) -> None:
    ids = ["a" * 64, "b" * 64]
    right = batch_body(ids, [0, 30, 70])
    damaged = bytearray(right)
    damaged[-from_the_end] ^= 1
    with misbehaving([sent(bytes(damaged)), sent(right)]) as server, client_of(server) as client:
        stacks = version_of(client).stacks(ids, ["layer2"], ())
        assert len(server.heard) == 2
    joined = b"".join(each.states.tobytes() for each in stacks)
    assert joined == SAMPLE.tensors["layer2"].tobytes()


def test_a_client_never_shows_its_key() -> None:
    client = Client("http://127.0.0.1:1", "strata_id_secret", retries=7, direct=True, check=False)
    settings = client.session.settings
    assert (settings.key, settings.patience.retries, settings.direct, settings.check) == (
        "strata_id_secret",
        7,
        True,
        False,
    )
    assert "secret" not in f"{client!r} {client.session!r} {settings!r} {version_of(client)!r}"


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "tab\t", "ünicode", "x\r\nHost: y"])
def test_a_key_that_would_break_the_request_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="expected a key") as caught:
        Client("http://127.0.0.1:1", key)
    assert key not in str(caught.value)


TABLE: dict[str, NDArray[np.generic]] = {
    "sample_ids": np.arange(64, dtype=np.uint8).reshape(2, 32),
    "n_tokens": np.array([5, 6], np.int32),
    "n_trained": np.array([1, 2], np.int32),
}


def table_body(**changed: NDArray[np.generic]) -> bytes:
    columns = {**TABLE, **changed}
    entries = [Entry(name, str(values.dtype), values.shape) for name, values in columns.items()]
    frame = build_frame(entries, {name: crc32c(values.tobytes()) for name, values in columns.items()}, {})
    return frame.head + b"".join(columns[entry.name].tobytes() for entry in frame.entries)


@pytest.mark.parametrize(
    "changed",
    [
        {"n_trained": np.array([1], np.int32)},
        {"n_tokens": np.array([5, 6], np.uint8)},
        {"sample_ids": np.zeros((2, 31), np.uint8)},
        {"sample_ids": np.zeros(2, np.uint8)},
        {"more": np.zeros(2, np.int32)},
    ],
    ids=["too few", "another dtype", "short ids", "no ids", "a column too many"],
)
def test_a_table_of_other_columns_is_refused(changed: dict[str, NDArray[np.generic]]) -> None:
    with (
        misbehaving([sent(table_body(**changed))]) as server,
        client_of(server) as client,
        pytest.raises(errors.ProtocolError),
    ):
        version_of(client).order_table()


def test_a_table_whose_bytes_changed_is_asked_for_once_more() -> None:
    damaged = table_body()[:-1] + b"x"
    with misbehaving([sent(damaged), sent(table_body())]) as server, client_of(server) as client:
        assert version_of(client).order_table().n_trained.tolist() == [1, 2]
    with misbehaving([sent(damaged)]) as server, client_of(server) as client:
        with pytest.raises(errors.ChecksumError) as caught:
            version_of(client).order_table()
        assert len(server.heard) == 2
    assert len(caught.value.problems) == 1
