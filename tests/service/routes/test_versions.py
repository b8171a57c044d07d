"""A version's schema and figures, over a real server."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.records import QuarantinedSample
from schemas.schema import Schema
from tests.builders import tiny_schema
from tests.service.serving import LENGTHS, client_of, make_dataset

VERSION = "/v1/datasets/demo/versions/1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def samples(root: Path) -> list[SampleData]:
    return make_dataset(root)


@pytest.fixture(scope="module")
def client(root: Path, samples: list[SampleData]) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def test_the_schema_names_every_tensor(client: httpx.Client) -> None:
    told = client.get(f"{VERSION}/schema").json()
    assert told["fingerprint"] == tiny_schema().fingerprint
    assert [(each["name"], each["boundary"], each["norm"]) for each in told["tensors"]] == [
        ("embed", 0, "pre_norm"),
        ("layer2", 2, "pre_norm"),
        ("final", 4, "pre_norm"),
    ]
    assert {(each["dtype"], each["width"], each["row_bytes"]) for each in told["tensors"]} == {
        ("bfloat16", 8, 16)
    }
    assert [each["name"] for each in told["token_columns"]] == ["input_ids", "loss_mask"]
    declared = Schema.model_validate(told["declared"])
    assert declared.fingerprint == told["fingerprint"]


def test_the_json_schema_is_of_a_sample(client: httpx.Client, samples: list[SampleData]) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    answer = client.get(f"{VERSION}/schema", params={"format": "json-schema"})
    assert answer.headers["content-type"] == "application/schema+json"
    assert answer.headers["strata-version"] == "1"
    valid = jsonschema_rs.validator_for(answer.json()).is_valid
    sample = samples[1]
    plain = {name: rows.astype(np.float32).tolist() for name, rows in sample.tensors.items()}
    plain |= {name: values.tolist() for name, values in sample.tokens.items()}
    assert valid(plain)
    assert not valid({**plain, "layer3": plain["layer2"]})
    assert not valid({name: rows for name, rows in plain.items() if name != "final"})
    assert not valid({**plain, "final": [row[:-1] for row in plain["final"]]})


def test_the_figures_are_those_of_the_samples(client: httpx.Client, samples: list[SampleData]) -> None:
    told = client.get(f"{VERSION}/stats").json()
    assert (told["n_samples"], told["n_tokens"], told["n_parts"]) == (len(LENGTHS), sum(LENGTHS), 1)
    assert told["n_trained"] == sum(int(sample.tokens["loss_mask"].sum()) for sample in samples)
    assert told["tensor_bytes"] == dict.fromkeys(["embed", "layer2", "final"], sum(LENGTHS) * 16)
    assert (told["lengths"]["min"], told["lengths"]["max"]) == (1, 200)
    bins = {(each["low"], each["high"]): each["n_samples"] for each in told["length_histogram"]}
    assert {at: count for at, count in bins.items() if count} == {
        (1, 1): 1,
        (32, 63): 1,
        (64, 127): 2,
        (128, 255): 2,
    }
    assert sum(bins.values()) == len(LENGTHS)
    final = next(each for each in told["norms"] if each["tensor"] == "final")
    medians = [float(np.median(sample.norms["final"])) for sample in samples]
    assert final["median"]["max"] == pytest.approx(max(medians))
    assert final["median"]["median"] == pytest.approx(np.median(medians))
    tails = [float(np.quantile(sample.norms["final"], 0.99)) for sample in samples]
    assert final["p99"]["min"] == pytest.approx(min(tails), rel=1e-3)


def test_what_was_not_made_is_counted_by_reason(tmp_path: Path) -> None:
    schema = tiny_schema()
    dataset = Dataset.create(open_door(tmp_path), "demo", schema, exist_ok=False)
    missed = [
        QuarantinedSample(source=f"a:{at}", reason=reason, detail="", run_id="run", prompt_id=f"{at:064x}")
        for at, reason in enumerate(["empty", "no_answer", "empty"])
    ]
    dataset.commit([], missed, run_id="run")
    with client_of(tmp_path) as client:
        told = client.get(f"{VERSION}/stats").json()
        assert told["quarantined"] == {"empty": 2, "no_answer": 1}
        assert (told["n_quarantined"], told["n_samples"], told["lengths"], told["norms"]) == (3, 0, None, [])
        assert client.get(f"{VERSION}/samples").json()["samples"] == []
        assert client.get(f"{VERSION}/order").json()["order"] == []
        assert client.get(f"{VERSION}/order/table").status_code == 200
        (rows,) = (tmp_path / "demo" / "quarantine").iterdir()
        rows.unlink()
        damaged = client.get(f"{VERSION}/stats")
        assert damaged.status_code == 500
        assert rows.name in damaged.json()["problems"][0]["where"]


def test_figures_over_several_index_files(tmp_path: Path) -> None:
    first, second = make_dataset(tmp_path), make_dataset(tmp_path, seed=50)
    with client_of(tmp_path) as client:
        told = client.get("/v1/datasets/demo/versions/2/stats").json()
        assert (told["n_samples"], told["n_parts"]) == (len(first) + len(second), 2)
