"""Datasets and versions, over a real server."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from tests.builders import tiny_schema
from tests.service.serving import LENGTHS, client_of, make_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    make_dataset(root, seed=50)
    make_dataset(root, "other")
    Dataset.create(open_door(root), "empty", tiny_schema(), exist_ok=False)
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def test_the_datasets_are_listed(client: httpx.Client) -> None:
    found = {each["name"]: each for each in client.get("/v1/datasets").json()["datasets"]}
    assert list(found) == ["demo", "empty", "other"]
    assert (found["demo"]["latest"], found["demo"]["n_samples"]) == (2, 2 * len(LENGTHS))
    assert (found["empty"]["latest"], found["empty"]["n_samples"]) == (None, 0)
    assert client.get("/v1/datasets/other").json() == found["other"]


def test_only_those_named_are_served(root: Path) -> None:
    with client_of(root, datasets=["other"]) as client:
        assert [each["name"] for each in client.get("/v1/datasets").json()["datasets"]] == ["other"]
        assert client.get("/v1/datasets/demo").status_code == 404
        assert client.get("/v1/datasets/other/versions/1").status_code == 200


def test_a_damaged_dataset_does_not_hide_the_others(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    make_dataset(tmp_path, "worse")
    record = tmp_path / "worse" / "versions" / "00000001.json"
    record.write_bytes(record.read_bytes().replace(b'"n_samples":6', b'"n_samples":7'))
    with client_of(tmp_path) as client:
        found = {each["name"]: each for each in client.get("/v1/datasets").json()["datasets"]}
        assert found["demo"]["latest"] == 1
        assert found["worse"]["latest"] is None
        assert found["worse"]["problems"][0]["where"] == "worse/versions/00000001.json"
        refused = client.get("/v1/datasets/worse/versions/1")
        assert refused.status_code == 500
        assert "expected digest" in refused.json()["problems"][0]["message"]


def test_an_index_that_is_gone_is_damage_and_not_unknown(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    (index,) = (tmp_path / "demo" / "index").iterdir()
    index.unlink()
    with client_of(tmp_path) as client:
        refused = client.get("/v1/datasets/demo/versions/1/samples")
        assert refused.status_code == 500
        assert index.name in refused.json()["problems"][0]["where"]


def test_versions_are_listed_newest_first_by_page(client: httpx.Client) -> None:
    whole = client.get("/v1/datasets/demo/versions").json()
    assert [each["number"] for each in whole["versions"]] == [2, 1]
    assert whole["next_before"] is None
    page = client.get("/v1/datasets/demo/versions", params={"limit": 1}).json()
    assert (page["versions"], page["next_before"]) == (whole["versions"][:1], 2)
    rest = client.get("/v1/datasets/demo/versions", params={"limit": 1, "before": 2}).json()
    assert (rest["versions"], rest["next_before"]) == (whole["versions"][1:], None)
    assert client.get("/v1/datasets/empty/versions").json() == {"versions": [], "next_before": None}


def test_a_version_says_what_it_holds(client: httpx.Client) -> None:
    answer = client.get("/v1/datasets/demo/versions/1")
    told = answer.json()
    assert (told["number"], told["parent"], told["operation"]) == (1, None, "append")
    assert (told["n_samples"], told["n_tokens"]) == (len(LENGTHS), sum(LENGTHS))
    assert told["schema_fingerprint"] == tiny_schema().fingerprint
    assert answer.headers["strata-dataset"] == "demo"
    assert answer.headers["strata-version"] == "1"
    assert answer.headers["strata-schema"] == tiny_schema().fingerprint


@pytest.mark.parametrize("rest", ["", "/stats", "/samples?limit=2&min_tokens=5", "/samples/" + "0" * 64])
def test_latest_is_redirected_to_its_number(client: httpx.Client, rest: str) -> None:
    answer = client.get(f"/v1/datasets/demo/versions/latest{rest}")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/v1/datasets/demo/versions/2{rest}")


@pytest.mark.parametrize("version", ["3", "99999999", "0", "01", "-1", "1.0", "+1", "x", "%D9%A3"])
def test_an_unknown_version_lists_those_there_are(client: httpx.Client, version: str) -> None:
    answer = client.get(f"/v1/datasets/demo/versions/{version}")
    assert answer.status_code == 404
    (problem,) = answer.json()["problems"]
    assert "1 to 2" in problem["message"] or "there are: none" in problem["message"]


def test_a_dataset_without_a_version_has_no_latest(client: httpx.Client) -> None:
    for version in ("latest", "1"):
        answer = client.get(f"/v1/datasets/empty/versions/{version}")
        assert answer.status_code == 404
        assert "nothing is committed" in answer.json()["problems"][0]["message"]


def test_a_commit_moves_latest_and_nothing_else(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with client_of(tmp_path) as client:
        before = client.get("/v1/datasets/demo/versions/1/samples").json()
        make_dataset(tmp_path, seed=50)
        assert client.get("/v1/datasets/demo/versions/latest").headers["location"].endswith("/2")
        assert client.get("/v1/datasets/demo/versions/1/samples").json() == before
