"""Up, ready and counted: over a real server, and after something happened to what it reads."""

import shutil
from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from tests.builders import tiny_schema
from tests.service.serving import client_of, make_dataset


def test_ready_is_said_after_a_read(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with client_of(tmp_path) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {
            "status": "ready",
            "n_datasets": 1,
            "read": "a sample's first tokens",
        }


def test_an_empty_root_is_ready(tmp_path: Path) -> None:
    Dataset.create(open_door(tmp_path), "empty", tiny_schema(), exist_ok=False)
    with client_of(tmp_path) as client:
        assert client.get("/readyz").json() == {"status": "ready", "n_datasets": 1, "read": None}


@pytest.mark.parametrize("gone", ["", "demo/parts", "demo/versions"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_what_cannot_be_read_is_not_ready(tmp_path: Path, gone: str, asked_before: bool) -> None:
    make_dataset(tmp_path)
    with client_of(tmp_path) as client:
        if asked_before:
            assert client.get("/readyz").status_code == 200
        shutil.rmtree(tmp_path / gone)
        answer = client.get("/readyz")
        if gone == "demo/versions" and not asked_before:
            assert answer.json()["read"] is None  # as before the first commit
            return
        if gone == "demo/versions":
            assert answer.status_code == 200  # what was read of a version is kept: it never changes
            return
        assert answer.status_code == 503
        assert str(tmp_path) not in answer.text
        assert client.get("/healthz").status_code == 200


def test_a_damaged_first_sample_is_not_ready_while_another_dataset_is(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    (part,) = (tmp_path / "demo" / "parts").iterdir()
    for shard in part.glob("data.zarr/embed/c/**/*"):
        if shard.is_file():
            data = bytearray(shard.read_bytes())
            shard.write_bytes(bytes(byte ^ 1 for byte in data[:1000]) + data[1000:])
    with client_of(tmp_path) as client:
        assert client.get("/readyz").status_code == 503
        make_dataset(tmp_path, "well")
        assert client.get("/readyz").status_code == 200


def test_what_is_done_is_counted(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    version = "/v1/datasets/demo/versions/1"
    with client_of(tmp_path) as client:
        n_bytes = len(client.get(f"{version}/stats").content) + len(client.get(f"{version}/stats").content)
        client.get(version, headers={"Strata-Schema": "0" * 64})
        client.get("/nowhere/1")
        client.get("/nowhere/2")
        client.request("LINK", "/v1/datasets")
        client.request("UNLINK", "/v1/datasets")
        counted = dict(
            line.rsplit(" ", 1)
            for line in client.get("/metrics").text.splitlines()
            if not line.startswith("#")
        )
    route = "/v1/datasets/{dataset}/versions/{version}"
    assert counted[f'strata_requests_total{{method="GET",route="{route}/stats",status="200"}}'] == "2.0"
    assert counted[f'strata_requests_total{{method="GET",route="{route}",status="409"}}'] == "1.0"
    assert counted['strata_requests_total{method="GET",route="(none)",status="404"}'] == "2.0"
    assert counted['strata_requests_total{method="(other)",route="/v1/datasets",status="405"}'] == "2.0"
    assert counted[f'strata_sent_bytes_total{{route="{route}/stats"}}'] == f"{n_bytes}.0"
    assert counted[f'strata_request_seconds_count{{route="{route}/stats"}}'] == "2.0"
    assert counted["strata_refused_wirings_total"] == "1.0"
    assert counted["strata_requests_in_flight"] == "1.0"
