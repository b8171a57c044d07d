"""A dataset in a bucket is exported as one in a folder is: the same files, to the byte."""

from pathlib import Path

import pytest

from datagen.export.exporting import Asked, plan_export, run_export
from datagen.store.bucket import BucketDoor
from datagen.store.errors import StoreError
from datagen.store.local import LocalDoor
from tests.datagen.adapters.exports.builders import make_dataset
from tests.datagen.export.asking import asked, listed
from tests.datagen.store.bucket_server import needs_moto, new_bucket, s3_server

pytestmark = needs_moto


def test_files_from_a_bucket_are_those_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "here")
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        there = BucketDoor(f"s3://{new_bucket(environment)}/states")
        here = LocalDoor(tmp_path / "here")
        for entry in here.entries(""):
            there.create(entry.key, here.read(entry.key))
        plan = plan_export(Asked(f"{there.url}/states", "speculators", tmp_path / "bucket"))
        assert plan.pinned == f"{there.url}/states@1"
        written = run_export(plan, workers=2)
        plan = plan_export(Asked(f"{there.url}/states", "speculators", tmp_path / "gone"))
        for entry in list(there.entries("states/parts")):
            there.delete(entry.key)
        with pytest.raises(StoreError):
            run_export(plan, workers=2)
    assert not (tmp_path / "gone").exists()
    local = run_export(plan_export(asked(dataset, tmp_path)), workers=2)
    assert listed(written.path) == listed(local.path)
