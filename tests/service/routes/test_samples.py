"""Samples by page and one by one, over a real server; a commit between two pages changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from datagen.store.checksum import bytes_of, crc32c
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.records import SplitRule
from tests.service.serving import client_of, make_dataset

SAMPLES = "/v1/datasets/demo/versions/1/samples"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def samples(root: Path) -> list[SampleData]:
    return make_dataset(root, lengths=range(1, 24))


@pytest.fixture(scope="module")
def client(root: Path, samples: list[SampleData]) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def ids_of(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return [each["sample_id"] for each in page.json()["samples"]]


@pytest.mark.parametrize("limit", [1, 5, 22, 23, 24, 1000])
def test_pages_hold_each_sample_once_in_order(
    client: httpx.Client, samples: list[SampleData], limit: int
) -> None:
    found, address, n_pages = [], f"{SAMPLES}?limit={limit}&min_tokens=2", 0
    while address:
        page = client.get(address)
        found += ids_of(page)
        address, n_pages = page.json()["next"], n_pages + 1
        assert page.json()["n_selected"] == 22
        assert n_pages <= 22
    assert found == sorted(sample.sample_id for sample in samples if sample.n_tokens >= 2)
    assert n_pages == -(-22 // limit)


def test_paging_through_latest_stays_where_it_began(tmp_path: Path) -> None:
    first = make_dataset(tmp_path, lengths=range(1, 10))
    with client_of(tmp_path) as client:
        client.follow_redirects = True
        latest = "/v1/datasets/demo/versions/latest/samples"
        found: list[str] = []
        cursor: str | None = None
        commits = 0
        while not commits or cursor:
            page = client.get(latest, params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
            found += ids_of(page)
            assert page.json()["version"] == 1
            assert commits < 5
            cursor, commits = page.json()["next_cursor"], commits + 1
            make_dataset(tmp_path, lengths=range(1, 4), seed=50 * commits)
        assert found == sorted(sample.sample_id for sample in first)
        assert len(ids_of(client.get(latest, params={"limit": 1000}))) == 9 + 3 * commits


def test_a_cursor_of_a_version_that_is_not_there_is_refused(client: httpx.Client) -> None:
    client.follow_redirects = False
    assert client.get(SAMPLES, params={"cursor": "MS5h"}).status_code == 422
    assert client.get(SAMPLES, params={"cursor": "x" * 257}).status_code == 422


def test_a_sample_is_told_with_its_tensors(client: httpx.Client, samples: list[SampleData]) -> None:
    for sample in samples[::7]:
        told = client.get(f"{SAMPLES}/{sample.sample_id}").json()
        assert (told["n_tokens"], told["conversation_id"]) == (sample.n_tokens, sample.conversation_id)
        assert told["n_trained"] == int(sample.tokens["loss_mask"].sum())
        assert told["prompt_id"] == sample.prompt_id
        assert [each["name"] for each in told["tensors"]] == ["embed", "layer2", "final"]
        for each in told["tensors"]:
            assert each["crc32c"] == f"{crc32c(bytes_of(sample.tensors[each['name']])):#010x}"
            assert each["shape"] == [sample.n_tokens, 8]
        assert told["size_bytes"] == sum(each["size_bytes"] for each in told["tensors"])


@pytest.mark.parametrize(
    ("sample_id", "status"), [("0" * 64, 404), ("0" * 63, 422), ("A" * 64, 422), ("x", 422), ("..", 404)]
)
def test_an_unknown_sample_is_refused(client: httpx.Client, sample_id: str, status: int) -> None:
    answer = client.get(f"{SAMPLES}/{sample_id.replace('.', '%2E')}")
    assert answer.status_code in (status, 422)
    assert answer.json()["problems"]


def test_splits_are_told_and_asked_for(tmp_path: Path) -> None:
    make_dataset(tmp_path, lengths=range(1, 24))
    rule = SplitRule(name="holdout", seed=0, fractions=(("train", 0.5), ("validation", 0.5)))
    Dataset.open(open_door(tmp_path), "demo").split([rule])
    with client_of(tmp_path) as client:
        address = "/v1/datasets/demo/versions/2/samples"
        train = client.get(address, params={"split": "train"}).json()
        held = client.get(address, params={"split": "validation"}).json()
        assert {name for each in train["samples"] for name in each["splits"]} == {"train"}
        assert len(train["samples"]) + len(held["samples"]) == 23
        assert min(len(train["samples"]), len(held["samples"])) > 0
        unknown = client.get(address, params={"split": "test"})
        assert unknown.status_code == 422
        assert "one of train, validation" in unknown.json()["problems"][0]["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "9" * 400),
        ("min_tokens", "-1"),
        ("min_trained", "1e3"),
        ("limit", "x"),
    ],
)
def test_limits_out_of_bounds_are_told_by_name(client: httpx.Client, name: str, value: str) -> None:
    answer = client.get(SAMPLES, params={name: value})
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["where"] == f"query.{name}"
    assert problem["message"].startswith("expected ")


def test_every_wrong_parameter_is_told_at_once(client: httpx.Client) -> None:
    answer = client.get(SAMPLES, params={"limit": "0", "min_tokens": "x"})
    assert {each["where"] for each in answer.json()["problems"]} == {"query.limit", "query.min_tokens"}
