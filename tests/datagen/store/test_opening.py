"""What a person writes as a root opens the door it means, or is refused by name."""

from pathlib import Path

import pytest

from datagen.store.bucket import BucketDoor
from datagen.store.errors import DoorError
from datagen.store.local import LocalDoor
from datagen.store.opening import open_door


def test_a_folder_is_a_local_door(tmp_path: Path) -> None:
    for root in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        door = open_door(root)
        assert isinstance(door, LocalDoor)
        assert door.local_path("demo/x") == tmp_path / "demo" / "x"


def test_a_url_is_a_bucket_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    door = open_door("s3://bucket/states/")
    assert isinstance(door, BucketDoor)
    assert door.url == "s3://bucket/states"
    memory = open_door("memory:///")
    memory.create("demo/x", b"here")
    assert memory.read("demo/x") == b"here"


@pytest.mark.parametrize("root", ["ftp://host/states", "http://host/states", "file://relative", "s3://"])
def test_another_kind_of_root_is_refused(root: str) -> None:
    with pytest.raises(DoorError, match=r"expected|write s3://BUCKET"):
        open_door(root)
