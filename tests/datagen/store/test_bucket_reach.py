"""How a bucket is reached: what a person sees where it is not, and that nobody waits for ever."""

import multiprocessing
import multiprocessing.connection
import os

import pytest

from datagen.store import bucket_reach
from datagen.store.bucket import BucketDoor
from datagen.store.bucket_reach import Reach, place_settings
from datagen.store.errors import DoorError
from tests.datagen.store.bucket_server import needs_moto

NOBODY_LISTENS = "http://127.0.0.1:9"


@needs_moto
def test_plain_http_needs_no_word_where_the_endpoint_is_written_so(
    door: BucketDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    other = BucketDoor(door.url)
    other.create("demo/x", b"here")
    assert other.read("demo/x") == b"here"


@needs_moto
def test_the_first_answer_is_waited_for_with_less_patience_than_all_others(door: BucketDoor) -> None:
    reach = Reach(door.url)
    with reach.store("read", "x") as first:
        pass
    with reach.store("read", "x") as then:
        assert then is not first
    with reach.store("read", "x") as again:
        assert again is then


@needs_moto
def test_a_refusal_is_an_answer(door: BucketDoor) -> None:
    other = BucketDoor("s3://no-such-bucket-here")
    with pytest.raises(DoorError, match="no such bucket"):
        other.read("demo/x")
    assert other._reach._answered is True


def test_who_does_not_answer_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reach, "FIRST_SECONDS", 0.1)
    for name, value in {
        "AWS_ENDPOINT_URL": NOBODY_LISTENS,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
    }.items():
        monkeypatch.setenv(name, value)
    door = BucketDoor("s3://bucket/states")
    for _ in range(2):
        with pytest.raises(DoorError, match=r"got: Connection refused \(GET http://127.0.0.1:9/") as caught:
            door.read("demo/x")
        assert "AWS_ENDPOINT_URL" in str(caught.value.problems[0].repair)
        assert door._reach._answered is False


def test_an_endpoint_without_a_scheme_is_told_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")
    with pytest.raises(DoorError, match="AWS_ENDPOINT_URL=https://HOST, or http://HOST:PORT"):
        BucketDoor("s3://bucket")


def _read(door: BucketDoor, answers: "multiprocessing.connection.Connection") -> None:
    try:
        answers.send(door.read("demo/x"))
    except DoorError as error:
        answers.send(str(error))


@needs_moto
@pytest.mark.parametrize(("method", "expected"), [("fork", "spawn or forkserver"), ("spawn", "here")])
def test_a_forked_child_is_refused_before_it_waits_for_ever(
    door: BucketDoor, method: str, expected: str
) -> None:
    door.create("demo/x", b"here")
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_read, args=(door, theirs), daemon=True)  # type: ignore[attr-defined]
    child.start()
    try:
        assert ours.poll(60)
        assert expected in str(ours.recv())
    finally:
        child.kill()
        child.join()


def test_the_place_is_told_to_others_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuple(os.environ):
        if name.startswith(("AWS_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert place_settings() == {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
