"""The bucket door against a real S3 server on the loopback."""

import pickle
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from datagen.store import bucket
from datagen.store.bucket import BucketDoor
from datagen.store.errors import AlreadyExistsError, CorruptError, DoorError, NotFoundError
from datagen.store.keys import is_litter
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.part_reader import PartReader
from tests.builders import random_sample, tiny_schema
from tests.datagen.store.bucket_server import needs_moto, policies

pytestmark = needs_moto


def keys(door: BucketDoor, prefix: str = "") -> list[str]:
    return [entry.key for entry in door.entries(prefix)]


def test_create_then_read(door: BucketDoor) -> None:
    door.create("demo/versions/00000001.json", b"one")
    assert door.read("demo/versions/00000001.json") == b"one"
    assert door.size("demo/versions/00000001.json") == 3
    assert keys(door, "demo") == ["demo/versions/00000001.json"]
    assert keys(door, "demo/vers") == []
    assert (door.free_bytes(), door.local_path("demo")) == (None, None)


def test_a_signed_url_gives_a_key_to_anybody_for_a_time(door: BucketDoor) -> None:
    door.create("demo/parts/one", bytes(range(100)))
    url = door.signed_url("demo/parts/one", 60)
    assert url is not None
    assert "X-Amz-Expires=60" in url
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=10-19"})) as answer:
        assert answer.read() == bytes(range(10, 20))


def test_where_there_are_no_urls_none_is_given(tmp_path: Path) -> None:
    assert LocalDoor(tmp_path).signed_url("demo/x", 60) is None
    assert BucketDoor("memory://").signed_url("demo/x", 60) is None


def test_create_refuses_a_key_that_is_there(door: BucketDoor) -> None:
    door.create("demo/x", b"one")
    with pytest.raises(AlreadyExistsError, match="states/demo/x"):
        door.create("demo/x", b"two")
    assert door.read("demo/x") == b"one"
    with pytest.raises(AlreadyExistsError, match="states/demo/x"):
        door.open_writer("demo/x")


def test_a_stream_of_a_reused_buffer_arrives_as_it_was(
    door: BucketDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "PIECE_BYTES", 5 * 2**20)
    buffer = np.empty(3 * 2**20, np.uint8)
    with door.open_writer("demo/big") as writer:
        for value in range(6):
            buffer[:] = value
            writer.write(buffer.data)
    assert door.size("demo/big") == 18 * 2**20
    back = np.frombuffer(door.read("demo/big"), np.uint8).reshape(6, -1)
    assert (back == np.arange(6, dtype=np.uint8)[:, None]).all()


def test_an_aborted_stream_never_appears(door: BucketDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "PIECE_BYTES", 5 * 2**20)
    writer = door.open_writer("demo/big")
    writer.write(bytes(11 * 2**20))
    writer.abort()
    writer.abort()
    assert keys(door) == []


def test_a_range_past_the_end_is_an_error_that_names_the_key(door: BucketDoor) -> None:
    door.create("demo/x", b"0123")
    into = np.zeros(4, np.uint8)
    door.read_into("demo/x", 0, into)
    assert into.tobytes() == b"0123"
    for offset, got in ((2, 2), (4, 0), (9, 0)):
        with pytest.raises(CorruptError, match=f"demo/x: expected 4 bytes from byte {offset}, got {got}"):
            door.read_into("demo/x", offset, into)


def test_a_missing_key_is_named(door: BucketDoor) -> None:
    for read in (door.read, door.size, lambda key: door.read_into(key, 0, np.zeros(1, np.uint8))):
        with pytest.raises(NotFoundError, match="states/demo/none"):
            read("demo/none")
    assert not door.exists("demo/none")
    door.delete("demo/none")


def test_hints_may_be_written_again_and_keys_deleted(door: BucketDoor) -> None:
    door.put_hint("demo/latest", b"1")
    door.put_hint("demo/latest", b"2")
    assert door.read("demo/latest") == b"2"
    door.delete("demo/latest")
    assert keys(door) == []


def test_a_missing_bucket_is_told(door: BucketDoor) -> None:
    other = BucketDoor("s3://no-such-bucket-here/states")
    for act in (lambda: other.create("demo/x", b""), lambda: other.read("demo/x")):
        with pytest.raises(DoorError, match="no such bucket"):
            act()


def test_what_is_not_a_key_is_refused(door: BucketDoor) -> None:
    with pytest.raises(DoorError, match="not a key"):
        door.read("../other/secret")


def test_the_probe_finds_a_server_that_ignores_conditions(
    door: BucketDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.probe_create("demo")
    assert keys(door) == []
    put = obstore.put

    def unconditional(store: Any, path: str, data: bytes, **settings: Any) -> Any:
        return put(store, path, data)

    monkeypatch.setattr(obstore, "put", unconditional)
    with pytest.raises(DoorError, match="a second create of one key was accepted"):
        door.probe_create("demo")
    assert keys(door) == []


def test_a_door_pickles_as_its_url(door: BucketDoor) -> None:
    door.create("demo/x", b"here")
    assert pickle.loads(pickle.dumps(door)).read("demo/x") == b"here"


def test_a_part_goes_through_a_bucket_bit_for_bit(door: BucketDoor) -> None:
    schema = tiny_schema()
    samples = [random_sample(schema, 10, 0), random_sample(schema, 150, 1)]
    with PartWriter(door, "demo", schema, "run-1") as part:
        for sample in samples:
            part.add(sample)
        closed = part.close()
    reader = PartReader(door, "demo", closed.record.part_id, schema, closed.record_sha256)
    for name, rows in samples[1].tensors.items():
        for window in (slice(0, 150), slice(60, 70), slice(149, 150)):
            assert reader.read_tensor(10, 150, name, window).tobytes() == rows[window].tobytes()
    assert reader.read_tokens(10, 150, "input_ids").tobytes() == samples[1].tokens["input_ids"].tobytes()


def test_an_abandoned_part_leaves_nothing(door: BucketDoor) -> None:
    schema = tiny_schema()
    with PartWriter(door, "demo", schema, "run-1") as part:
        part.add(random_sample(schema, 10, 0))
    assert keys(door) == []


def test_a_bucket_is_asked_whether_it_can_be_written_and_keeps_nothing(
    door: BucketDoor, server: dict[str, str]
) -> None:
    assert door.write_problems("demo") == []
    assert keys(door) == []
    (problem,) = BucketDoor("s3://no-such-bucket-of-ours").write_problems("demo")
    assert "no such bucket" in problem.message


def test_who_may_only_read_reads_and_is_told_what_the_server_says(
    door: BucketDoor, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    door.create("demo/x", b"here")
    with policies(server) as user:
        for name, value in user(["s3:GetObject", "s3:ListBucket"]).items():
            monkeypatch.setenv(name, value)
        reading = BucketDoor(door.url)
        assert reading.read("demo/x") == b"here"
        (problem,) = reading.write_problems("demo")
        assert problem.message == "expected to write here, got: 403 Forbidden: AccessDenied, Access Denied"
        assert problem.repair is not None
        assert "policy" in problem.repair
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        with pytest.raises(DoorError, match="got: 403 Forbidden: InvalidAccessKeyId"):
            BucketDoor(door.url).read("demo/x")


def test_who_may_not_delete_may_write(
    door: BucketDoor, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with policies(server) as user:
        for name, value in user(["s3:GetObject", "s3:ListBucket", "s3:PutObject"]).items():
            monkeypatch.setenv(name, value)
        writing = BucketDoor(door.url)
        assert writing.write_problems("demo") == []
        writing.probe_create("demo")
        with pytest.raises(DoorError, match=r"got: Access Denied .*policy"):
            writing.delete("demo/x")
        assert all(is_litter(key) for key in keys(writing))
