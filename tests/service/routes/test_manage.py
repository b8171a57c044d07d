"""Management over a real server: statuses, versions in answers, If-Match, refusals that change nothing."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from service.access.keys import KeyFile
from tests.service.folders import content_of
from tests.service.serving import client_of, make_dataset

SPLIT = {"shares": [{"split": "train", "share": 0.5}, {"split": "validation", "share": 0.5}]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """A server over two versions: four samples, then two more."""
    make_dataset(tmp_path, lengths=(1, 2, 3, 64))
    make_dataset(tmp_path, lengths=(5, 6), seed=50)
    with client_of(tmp_path) as client:
        yield client


def post(client: httpx.Client, path: str, body: object, **headers: str) -> httpx.Response:
    sent = {"Content-Type": "application/json", **headers}
    return client.post(f"/v1/datasets/demo/{path}", content=json.dumps(body), headers=sent)


def told(response: httpx.Response, status: int) -> list[dict[str, Any]]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problems: list[dict[str, Any]] = response.json()["problems"]
    assert problems
    return problems


def test_the_whole_life_of_a_dataset(client: httpx.Client, tmp_path: Path) -> None:
    named = post(client, "names", {"name": "v1", "version": "1"})
    assert (named.status_code, named.json()["changed"], named.headers["Strata-Version"]) == (200, True, "1")
    split = post(client, "splits", SPLIT, **{"If-Match": '"2"'}).json()
    assert (split["version"], split["changed"], sum(one["n_samples"] for one in split["shares"])) == (
        3,
        True,
        6,
    )
    assert post(client, "splits", SPLIT).json()["changed"] is False
    dropped = post(client, "drop", {"shorter_than": 6})
    assert (dropped.json()["n_dropped"], dropped.headers["Strata-Version"]) == (4, "4")
    assert dropped.headers["Strata-Dataset"] == "demo"
    assert post(client, "drop", {"shorter_than": 6}).json()["changed"] is False
    compared = client.get("/v1/datasets/demo/compare", params={"from": "v1", "limit": 2}).json()
    assert (compared["removed"]["n_samples"], compared["added"]["n_samples"]) == (3, 1)
    page = {"from": "v1", "to": "4", "limit": 2, "removed_cursor": compared["removed"]["next_cursor"]}
    rest = client.get("/v1/datasets/demo/compare", params=page).json()["removed"]
    assert (len(rest["sample_ids"]), rest["next_cursor"]) == (1, None)
    back = post(client, "rollback", {"version": "v1"}).json()
    assert (back["version"], back["to_version"], back["n_samples"]) == (5, 1, 4)
    names = client.get("/v1/datasets/demo/names").json()["names"]
    assert [(one["name"], one["version"]) for one in names] == [("v1", 1)]
    assert verify(Dataset.open(LocalDoor(tmp_path), "demo")).problems == []


def test_of_many_that_looked_at_one_version_one_changes_it(client: httpx.Client, tmp_path: Path) -> None:
    looked = client.get("/v1/datasets/demo/versions/2/samples").json()["samples"]
    ids = [one["sample_id"] for one in looked]

    def drop(sample_id: str) -> int:
        return post(client, "drop", {"sample_ids": [sample_id]}, **{"If-Match": '"2"'}).status_code

    with ThreadPoolExecutor(len(ids)) as pool:
        assert sorted(pool.map(drop, ids)) == [200] + [409] * (len(ids) - 1)
    newest = Dataset.open(LocalDoor(tmp_path), "demo").latest()
    assert newest is not None
    assert (newest.number, newest.n_samples) == (3, len(ids) - 1)


def test_a_name_in_a_url_is_redirected_to_its_number(client: httpx.Client) -> None:
    post(client, "names", {"name": "v1", "version": "1"})
    moved = client.get("/v1/datasets/demo/versions/v1/schema")
    assert (moved.status_code, moved.headers["location"]) == (307, "/v1/datasets/demo/versions/1/schema")
    assert client.get(moved.headers["location"]).headers["Strata-Version"] == "1"
    (problem,) = told(client.get("/v1/datasets/demo/versions/v9"), 404)
    assert "there are: v1" in problem["message"]


def test_swept_samples_are_410_and_the_rest_is_served(client: httpx.Client) -> None:
    sample_ids = [
        one["sample_id"] for one in client.get("/v1/datasets/demo/versions/2/samples").json()["samples"]
    ]
    post(client, "drop", {"conversation_ids": [f"conversation-{n}" for n in range(4)]})
    gc: dict[str, object] = {"grace_seconds": 0, "keep_versions": 1}
    trial = post(client, "gc/condemn", {**gc, "dry_run": True}).json()
    done = post(client, "gc/condemn", gc).json()
    assert (trial["parts"], trial["size_bytes"]) == (done["parts"], done["size_bytes"])
    urls = [f"/v1/datasets/demo/versions/2/samples/{one}/tensors" for one in sample_ids]
    assert {client.get(url).status_code for url in urls} == {200}
    swept = post(client, "gc/sweep", {"grace_seconds": 0}).json()
    assert (swept["changed"], swept["size_bytes"]) == (True, done["size_bytes"])
    assert post(client, "gc/sweep", {"grace_seconds": 0}).json()["changed"] is False
    answers = [client.get(url) for url in urls]
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [410] * 4
    for answer in answers:
        if answer.status_code == 410:
            (problem,) = told(answer, 410)
            assert (problem["kind"], "read version 4" in problem["repair"]) == ("gone", True)
    told(post(client, "rollback", {"version": "2"}), 409)
    told(post(client, "names", {"name": "old", "version": "2"}), 409)


REFUSALS: list[Any] = [
    pytest.param("splits", SPLIT, '"1"', 409, "expected_version", id="stale-if-match"),
    pytest.param(
        "drop", {"shorter_than": 9, "expected_version": 1}, None, 409, "expected_version", id="stale"
    ),
    pytest.param("drop", {"shorter_than": 9}, "latest", 422, "header.If-Match", id="if-match-no-number"),
    pytest.param("drop", {"shorter_than": 9}, '"1", "2"', 422, "header.If-Match", id="if-match-two"),
    pytest.param(
        "drop",
        {"shorter_than": 9, "expected_version": 1},
        '"2"',
        422,
        "body.expected_version",
        id="two-minds",
    ),
    pytest.param("drop", {"sample_ids": ["0" * 64]}, None, 404, "0" * 64, id="unknown-sample"),
    pytest.param("drop", {"sample_ids": ["../x"]}, None, 422, "body.sample_ids.0", id="no-id"),
    pytest.param("drop", {}, None, 422, "body", id="drop-what"),
    pytest.param("drop", {"shorter_than": 2, "conversation_ids": ["a"]}, None, 422, "body", id="two-ways"),
    pytest.param("drop", {"shorter_than": 2, "shorter": 1}, None, 422, "body.shorter", id="extra"),
    pytest.param("splits", {"shares": []}, None, 422, "splits.default", id="no-share"),
    pytest.param(
        "splits", {"shares": [{"split": "a", "share": 2}]}, None, 422, "splits.default.a", id="share-of-2"
    ),
    pytest.param(
        "splits", {"seed": 2**63, "shares": [{"split": "a", "share": 1}]}, None, 422, "body.seed", id="seed"
    ),
    pytest.param("rollback", {"version": "9"}, None, 404, "version", id="no-version"),
    pytest.param("rollback", {"version": "../1"}, None, 422, "body.version", id="version-above"),
    pytest.param("names", {"name": "latest"}, None, 422, "name", id="latest"),
    pytest.param("names", {"name": "a/../b"}, None, 422, "name", id="name-above"),
    pytest.param("names", {"name": "x" * 1000}, None, 422, "body.name", id="name-too-long"),
    pytest.param("drop", {"conversation_ids": ["x" * 999]}, None, 404, "x" * 128, id="unknown-conversation"),
    pytest.param("drop", {"conversation_ids": ["\ud800"]}, None, 404, "\ud800", id="half-a-surrogate-pair"),
    pytest.param("drop", {"shorter_than": 1e308}, None, 422, "body.shorter_than", id="huge"),
    pytest.param("gc/condemn", {"keep_versions": 0}, None, 422, "body.keep_versions", id="keep-none"),
    pytest.param("gc/sweep", {"grace_seconds": -1}, None, 422, "body.grace_seconds", id="grace"),
    pytest.param("gc/sweep", {"grace_seconds": 1e300}, None, 422, "body.grace_seconds", id="long-grace"),
]


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    """A server over two versions that no test changes."""
    root = tmp_path_factory.mktemp("still")
    make_dataset(root, lengths=(1, 2, 3, 64))
    make_dataset(root, lengths=(5, 6), seed=50)
    with client_of(root) as client:
        yield client, root


@pytest.mark.parametrize(("path", "body", "match", "status", "where"), REFUSALS)
def test_a_refused_request_changes_nothing(
    still: tuple[httpx.Client, Path], path: str, body: object, match: str | None, status: int, where: str
) -> None:
    client, root = still
    before = content_of(root)
    headers = {} if match is None else {"If-Match": match}
    problems = told(post(client, path, body, **headers), status)
    assert problems[0]["where"] == where
    assert content_of(root) == before


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("from=1&to=99", 404),
        ("from=nobody", 404),
        ("", 422),
        ("from=../1", 422),
        ("from=1&limit=100000", 422),
        ("from=1&added_cursor=zz", 422),
    ],
)
def test_what_cannot_be_compared_is_told(still: tuple[httpx.Client, Path], query: str, status: int) -> None:
    told(still[0].get(f"/v1/datasets/demo/compare?{query}"), status)


def test_a_dry_run_changes_nothing(still: tuple[httpx.Client, Path]) -> None:
    client, root = still
    before = content_of(root)
    bodies: dict[str, dict[str, object]] = {
        "splits": dict(SPLIT),
        "drop": {"shorter_than": 6},
        "rollback": {"version": "1"},
        "gc/condemn": {"keep_versions": 1, "grace_seconds": 0},
        "gc/sweep": {"grace_seconds": 0},
    }
    for path, body in bodies.items():
        answer = post(client, path, {**body, "dry_run": True})
        assert (answer.status_code, answer.json()["dry_run"], answer.json()["version"]) == (200, True, 2)
    assert content_of(root) == before


def test_a_dataset_that_is_not_there(still: tuple[httpx.Client, Path]) -> None:
    client, _ = still
    for path, body in (("splits", SPLIT), ("names", {"name": "v1"}), ("gc/sweep", {})):
        told(client.post(f"/v1/datasets/nobody/{path}", json=body), 404)


def test_scopes(tmp_path: Path) -> None:
    make_dataset(tmp_path / "root", lengths=(1, 2))
    file = KeyFile(tmp_path / "keys.json")
    written = {scope: file.create(scope, scope).written for scope in ("read", "manage", "admin")}
    needs = {
        "splits": ("manage", SPLIT),
        "drop": ("manage", {"shorter_than": 1}),
        "rollback": ("manage", {"version": "1"}),
        "names": ("manage", {"name": "v", "version": "1"}),
        "gc/condemn": ("admin", {"keep_versions": 1}),
        "gc/sweep": ("admin", {}),
    }
    order = ["read", "manage", "admin"]
    with client_of(tmp_path / "root", keys=str(file.path)) as client:
        for scope, key in written.items():
            for path, (needed, body) in needs.items():
                status = post(client, path, body, Authorization=f"Bearer {key}").status_code
                assert status == (200 if order.index(scope) >= order.index(needed) else 403), (scope, path)
            reading = client.get("/v1/datasets/demo/names", headers={"Authorization": f"Bearer {key}"})
            assert reading.status_code == 200
        assert post(client, "splits", SPLIT).status_code == 401
