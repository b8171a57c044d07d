"""The epoch order over HTTP is the published function, and the table holds all that it needs."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from datagen.store.sample_data import SampleData
from service.wire.order import epoch_order
from tests.service.serving import client_of, make_dataset

ORDER = "/v1/datasets/demo/versions/2/order"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def samples(root: Path) -> list[SampleData]:
    written = make_dataset(root, lengths=range(1, 24)) + make_dataset(root, lengths=range(1, 24), seed=50)
    return sorted(written, key=lambda sample: sample.sample_id)


@pytest.fixture(scope="module")
def client(root: Path, samples: list[SampleData]) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def test_the_order_is_the_function_over_the_tables_ids(
    client: httpx.Client, samples: list[SampleData]
) -> None:
    answer = client.get(f"{ORDER}/table", params={"min_tokens": 3})
    assert answer.headers["strata-version"] == "2"
    table = load(answer.content)
    kept = [sample for sample in samples if sample.n_tokens >= 3]
    assert [row.tobytes().hex() for row in table["sample_ids"]] == [sample.sample_id for sample in kept]
    assert table["n_tokens"].tolist() == [sample.n_tokens for sample in kept]
    assert table["n_trained"].tolist() == [int(sample.tokens["loss_mask"].sum()) for sample in kept]
    for seed, epoch in ((0, 0), (7, 3), (2**63 - 1, 2**31 - 1)):
        asked = {"seed": seed, "epoch": epoch, "count": 1000, "min_tokens": 3}
        got = client.get(ORDER, params=asked).json()
        expected = [kept[at] for at in epoch_order(table["sample_ids"], seed, epoch)]
        assert got["n_positions"] == len(kept)
        assert got["order"] == [
            {"position": at, "sample_id": sample.sample_id, "n_tokens": sample.n_tokens}
            for at, sample in enumerate(expected)
        ]


def test_stretches_make_up_the_epoch(client: httpx.Client) -> None:
    whole = client.get(ORDER, params={"seed": 1, "count": 1000}).json()["order"]
    found: list[dict[str, object]] = []
    for position in range(0, 46, 10):
        found += client.get(ORDER, params={"seed": 1, "position": position, "count": 10}).json()["order"]
    assert found == whole
    assert client.get(ORDER, params={"seed": 1, "position": 46}).json()["order"] == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"position": 47}, 416),
        ({"position": -1}, 422),
        ({"count": 0}, 422),
        ({"count": 10**9}, 422),
        ({"seed": 2**63}, 422),
        ({"epoch": "x"}, 422),
    ],
    ids=str,
)
def test_what_is_out_of_bounds_is_refused(client: httpx.Client, asked: dict[str, int], status: int) -> None:
    answer = client.get(ORDER, params=asked)
    assert answer.status_code == status
    assert answer.json()["problems"][0]["where"] == f"query.{next(iter(asked))}"


def test_an_empty_selection_is_an_empty_table(client: httpx.Client) -> None:
    table = load(client.get(f"{ORDER}/table", params={"min_tokens": 1000}).content)
    assert table["sample_ids"].shape == (0, 32)
    assert table["n_tokens"].dtype == np.int32
