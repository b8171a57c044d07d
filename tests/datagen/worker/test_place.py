"""A worker and its place: what it cannot write is told by name before a model is loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datagen.driver.driver import open_job, work_order
from datagen.store import bucket_reach
from datagen.store.errors import DoorError
from datagen.worker.actor import Worker, WorkOrder
from tests.datagen.driver.test_generate_runs import LENGTHS, generating, write_asks


def _order(tmp_path: Path, **settings: Any) -> WorkOrder:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    order = work_order(open_job(generating(tmp_path)))
    return replace(order, root="s3://bucket/states", **settings)


@pytest.fixture
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reach, "FIRST_SECONDS", 0.1)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.usefixtures("nobody_listens")
def test_what_cannot_be_written_is_told_with_its_host_before_a_model_is_loaded(tmp_path: Path) -> None:
    worker = Worker(_order(tmp_path))
    with pytest.raises(DoorError, match=r"worker on .*: s3://bucket/states/small: .*Connection refused"):
        worker.describe()
    assert "_engine" not in vars(worker)
    assert Worker(_order(tmp_path, writes=False)).describe().host


@pytest.mark.usefixtures("nobody_listens")
def test_the_driver_says_which_bucket_is_meant_where_the_node_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = _order(tmp_path, place={"AWS_ENDPOINT_URL": "http://127.0.0.1:19"})
    with pytest.raises(DoorError, match=r"PUT http://127\.0\.0\.1:9/"):
        Worker(order).describe()
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    with pytest.raises(DoorError, match=r"PUT http://127\.0\.0\.1:19/"):
        Worker(order).describe()


def test_the_order_says_which_bucket_the_driver_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert _order(tmp_path).place["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"
