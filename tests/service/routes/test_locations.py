"""Locations: what they name is what was written, whole and by window, in a folder and in a bucket."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.store.checksum import block_checksums, bytes_of, crc32c
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.sample_data import SampleData
from schemas.records import BLOCK_ROWS
from service.app import create_app
from service.client import errors
from service.client.client import Client
from tests.builders import tiny_schema
from tests.datagen.store.bucket_server import needs_moto, new_bucket, s3_server
from tests.datagen.store.real_parts import commit_samples, samples_of
from tests.service.in_process import InProcess
from tests.service.serving import client_of, make_dataset, serving, settings_of

NAMES = ["embed", "layer2", "final", "input_ids", "loss_mask"]
BASE = "/v1/datasets/demo/versions/1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def samples(root: Path) -> list[SampleData]:
    return make_dataset(root)


@pytest.fixture(scope="module")
def http(root: Path, samples: list[SampleData]) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def array_of(sample: SampleData, name: str) -> NDArray[np.generic]:
    return sample.tensors[name] if name in sample.tensors else sample.tokens[name]


def assert_located(told: dict[str, Any], sample: SampleData, first: int, end: int) -> None:
    """Read what a location names as a stranger would, and compare it and its checksums."""
    expected = array_of(sample, told["name"])[first:end]
    data = Path(told["path"]).read_bytes()
    assert len(data) == told["size_bytes"]
    assert data[told["offset"] : told["offset"] + told["length"]] == expected.tobytes()
    assert told["shape"] == list(expected.shape)
    blocks = data[told["block_offset"] : told["block_end"]]
    size = told["block_bytes"]
    assert told["blocks"] == [crc32c(blocks[at : at + size]) for at in range(0, len(blocks), size)]
    assert told["block_offset"] <= told["offset"]
    assert told["block_end"] >= told["offset"] + told["length"]
    if told["crc32c"] is not None:
        assert told["crc32c"] == crc32c(expected.tobytes())


@pytest.mark.parametrize(
    "window", [None, (0, 1), (3, 60), (0, 64), (63, 65), (64, 200), (199, 200), (128, 130)]
)
def test_a_location_names_the_bytes(
    http: httpx.Client, samples: list[SampleData], window: tuple[int, int] | None
) -> None:
    for sample in samples:
        first, end = window or (0, sample.n_tokens)
        query = {} if window is None else {"tokens": f"{first}:{end}"}
        answer = http.get(f"{BASE}/samples/{sample.sample_id}/locations", params=query)
        if end > sample.n_tokens:
            assert (answer.status_code, answer.json()["problems"][0]["where"]) == (416, "tokens")
            continue
        (told,) = answer.json()["samples"]
        assert (told["sample_id"], told["n_tokens"]) == (sample.sample_id, sample.n_tokens)
        assert [array["name"] for array in told["arrays"]] == [
            "embed",
            "layer2",
            "final",
            "input_ids",
            "loss_mask",
        ]
        for array in told["arrays"]:
            assert_located(array, sample, first, end)
            is_hidden_window = (first, end) != (0, sample.n_tokens) and array["name"] in sample.tensors
            assert (array["crc32c"] is None) == is_hidden_window


def test_the_blocks_of_a_sample_are_counted_from_its_start(
    http: httpx.Client, samples: list[SampleData]
) -> None:
    sample = samples[-1]
    answer = http.get(f"{BASE}/samples/{sample.sample_id}/locations", params={"names": "final"})
    (array,) = answer.json()["samples"][0]["arrays"]
    assert array["blocks"] == block_checksums(sample.tensors["final"]).tolist()
    assert array["block_bytes"] == BLOCK_ROWS * 8 * 2
    assert array["crc32c"] == crc32c(bytes_of(sample.tensors["final"]))


def test_many_samples_are_told_in_the_order_asked(http: httpx.Client, samples: list[SampleData]) -> None:
    asked = [samples[at].sample_id for at in (4, 1, 4, 0)]
    answer = http.post(f"{BASE}/locations", json={"ids": asked, "names": ["input_ids", "layer2"]})
    assert answer.headers["strata-version"] == "1"
    assert [sample["sample_id"] for sample in answer.json()["samples"]] == asked
    for told in answer.json()["samples"]:
        assert [array["name"] for array in told["arrays"]] == ["layer2", "input_ids"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"ids": []}, 422),
        ({"ids": ["../x"]}, 422),
        ({"ids": ["0" * 64], "names": []}, 422),
        ({"ids": ["0" * 64], "names": ["layer3"]}, 422),
        ({"ids": ["0" * 64], "paths": "all"}, 422),
        ({"ids": ["0" * 64]}, 404),
        ({"ids": ["0" * 64] * 5}, 413),
    ],
)
def test_what_cannot_be_told_is_refused(
    root: Path, samples: list[SampleData], body: dict[str, Any], status: int
) -> None:
    app = InProcess(create_app(settings_of(root, max_batch_samples=4)), base_url="http://127.0.0.1")
    answer = app.request("POST", f"{BASE}/locations", json=body)
    assert answer.status_code == status
    assert answer.json()["problems"]


@pytest.mark.parametrize("given", [{"locations": "off"}, {"host": "192.0.2.1", "anonymous": "read"}])
def test_paths_are_not_told_to_other_machines_unless_said(
    root: Path, samples: list[SampleData], given: dict[str, Any]
) -> None:
    path = f"{BASE}/samples/{samples[0].sample_id}/locations"
    app = InProcess(create_app(settings_of(root, **given)), base_url="http://127.0.0.1")
    answer = app.get(path)
    assert answer.status_code == 403
    assert str(root) not in answer.text
    if "host" in given:
        told = InProcess(create_app(settings_of(root, **given, locations="on")), base_url="http://127.0.0.1")
        assert str(root) in told.get(path).text


@needs_moto
def test_a_bucket_is_told_by_presigned_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{new_bucket(environment)}/states"
        schema = tiny_schema()
        samples = samples_of(schema, (70, 3))
        commit_samples(Dataset.create(open_door(url), "demo", schema, exist_ok=False), schema, samples)
        with serving(url, datasets=("demo",)) as at, Client(at) as client:
            version = client.version("demo")
            for sample, told in zip(
                samples, version.locations([sample.sample_id for sample in samples]), strict=True
            ):
                for array in told.arrays:
                    assert array.path is None
                    assert array.url is not None
                    last = array.offset + array.length - 1
                    request = urllib.request.Request(
                        array.url, headers={"Range": f"bytes={array.offset}-{last}"}
                    )
                    with urllib.request.urlopen(request) as answer:
                        assert answer.read() == array_of(sample, array.name).tobytes()
            rows = version.tensors(samples[0].sample_id)
            assert client.mode == "http"
            assert rows.tensors["final"].tobytes() == samples[0].tensors["final"].tobytes()
            with Client(at, direct=True) as other, pytest.raises(errors.ClientError, match="in a bucket"):
                other.version("demo").tensors(samples[0].sample_id)
