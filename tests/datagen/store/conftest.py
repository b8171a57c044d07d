"""One S3 server for all tests of the store."""

from collections.abc import Iterator

import pytest

from datagen.store.bucket import BucketDoor
from tests.datagen.store.bucket_server import new_bucket, s3_server


@pytest.fixture(scope="package")
def server() -> Iterator[dict[str, str]]:
    """Run the server; give the variables by which a client finds it."""
    with s3_server() as environment:
        yield environment


@pytest.fixture
def door(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> BucketDoor:
    """Give a door to a new bucket, by this process's environment."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return BucketDoor(f"s3://{new_bucket(server)}/states")
