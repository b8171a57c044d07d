"""Tensors over a real server: what was written comes back bit for bit, in every format, window and range."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import safe_open

from datagen.store.checksum import crc32c
from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.sample_data import SampleData
from schemas.schema import DTYPES
from service.wire.frame import Frame, head_bytes, parse_frame
from tests.builders import tiny_schema
from tests.service.serving import LENGTHS, client_of, make_dataset

NAMES = ["embed", "layer2", "final", "input_ids", "loss_mask"]
VERSION = "/v1/datasets/demo/versions/{}"
ANY_NAMES = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)


class Served(NamedTuple):
    """A server's client and what was written behind it: two parts of one version."""

    client: httpx.Client
    samples: list[SampleData]
    version: str

    def get(self, sample: SampleData, query: str = "", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(f"{self.version}/samples/{sample.sample_id}/tensors{query}", headers=named)

    def batch(self, **body: Any) -> httpx.Response:
        return self.client.post(f"{self.version}/batch", json=body)


@pytest.fixture(scope="module", params=DTYPES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    schema = tiny_schema(dtype=request.param)
    samples = make_dataset(root, schema=schema) + make_dataset(root, schema=schema, seed=100)
    with client_of(root) as client:
        yield Served(client, samples, VERSION.format(2))


def rows_of(sample: SampleData, name: str) -> NDArray[np.generic]:
    return sample.tensors[name] if name in sample.tensors else sample.tokens[name]


def opened(body: bytes) -> tuple[Frame, dict[str, NDArray[np.generic]]]:
    """Return the frame and the arrays of a body, each checksum compared."""
    frame = parse_frame(body[: head_bytes(body[:8])])
    assert frame.size == len(body)
    arrays = {}
    for entry, start in zip(frame.entries, frame.starts(), strict=True):
        data = body[start : start + entry.n_bytes]
        assert crc32c(data) == frame.checksums[entry.name]
        arrays[entry.name] = np.frombuffer(data, NUMPY_DTYPES[entry.dtype]).reshape(entry.shape)
    return frame, arrays


def assert_same(found: NDArray[np.generic], wanted: NDArray[np.generic]) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


@given(data=st.data(), names=st.none() | ANY_NAMES)
@settings(deadline=None, max_examples=40)
def test_any_window_of_any_names_comes_back(
    served: Served, data: st.DataObject, names: list[str] | None
) -> None:
    sample = data.draw(st.sampled_from(served.samples))
    first = data.draw(st.integers(0, sample.n_tokens - 1))
    end = data.draw(st.integers(first + 1, sample.n_tokens))
    query = f"?tokens={first}:{end}" + (f"&names={','.join(names)}" if names else "")
    frame, arrays = opened(served.get(sample, query).raise_for_status().content)
    assert arrays.keys() == set(names or NAMES)
    for name, found in arrays.items():
        assert_same(found, rows_of(sample, name)[first:end])
    assert frame.metadata["tokens"] == f"{first}:{end}"
    assert frame.metadata["sample_id"] == sample.sample_id


@given(data=st.data(), name=st.sampled_from(NAMES))
@settings(deadline=None, max_examples=25)
def test_raw_bytes_of_one_tensor(served: Served, data: st.DataObject, name: str) -> None:
    sample = data.draw(st.sampled_from(served.samples))
    first = data.draw(st.integers(0, sample.n_tokens - 1))
    response = served.get(sample, f"?names={name}&tokens={first}:", accept="application/octet-stream")
    wanted = rows_of(sample, name)[first:]
    assert response.content == wanted.tobytes()
    assert response.headers["content-type"] == "application/octet-stream"
    assert NUMPY_DTYPES[response.headers["strata-dtype"]] == wanted.dtype
    assert response.headers["strata-shape"] == ",".join(map(str, wanted.shape))
    assert int(response.headers["strata-crc32c"], 16) == crc32c(wanted.tobytes())
    assert served.get(sample, f"?names={name}&tokens={first}:&format=raw").content == response.content


@given(data=st.data(), is_raw=st.booleans())
@settings(deadline=None, max_examples=40)
def test_any_range_is_the_slice_of_the_whole(served: Served, data: st.DataObject, is_raw: bool) -> None:
    sample = data.draw(st.sampled_from(served.samples))
    query = "?names=final&format=raw" if is_raw else "?tokens=:"
    whole = served.get(sample, query)
    size = len(whole.content)
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, size + 5))
    part = served.get(sample, query, range=f"bytes={first}-{last}", if_range=whole.headers["etag"])
    assert part.status_code == 206
    assert part.content == whole.content[first : last + 1]
    assert part.headers["content-range"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    assert part.headers["etag"] == whole.headers["etag"]


@given(picked=st.lists(st.integers(0, 11), min_size=1, max_size=15), names=st.none() | ANY_NAMES)
@settings(deadline=None, max_examples=25)
def test_a_batch_is_its_samples_end_to_end(
    served: Served, picked: list[int], names: list[str] | None
) -> None:
    samples = [served.samples[number] for number in picked]
    asked: dict[str, Any] = {"ids": [sample.sample_id for sample in samples]}
    response = served.batch(**asked, **({"names": names} if names else {})).raise_for_status()
    _, arrays = opened(response.content)
    assert arrays.pop("sample_ids").tobytes().hex() == "".join(asked["ids"])
    assert arrays.pop("offsets").tolist() == np.cumsum([0, *(one.n_tokens for one in samples)]).tolist()
    assert arrays.keys() == set(names or NAMES)
    for name, found in arrays.items():
        assert_same(found, np.concatenate([rows_of(sample, name) for sample in samples]))


def test_a_batch_by_positions_of_an_epoch(served: Served) -> None:
    order = served.client.get(f"{served.version}/order?seed=7&epoch=2&min_tokens=60").json()["order"]
    positions = [4, 0, 4]
    body = {"seed": 7, "epoch": 2, "min_tokens": 60, "positions": positions}
    _, arrays = opened(served.batch(order=body, names=["input_ids"]).raise_for_status().content)
    wanted = [order[position]["sample_id"] for position in positions]
    assert [bytes(row).hex() for row in arrays["sample_ids"]] == wanted
    beyond = served.batch(order={**body, "positions": [0, len(order), 10**6]})
    assert beyond.status_code == 416
    assert len(beyond.json()["problems"]) == 2


def test_stock_loaders_read_a_saved_response(served: Served, tmp_path: Path) -> None:
    sample = served.samples[4]
    file = tmp_path / "sample.safetensors"
    file.write_bytes(served.get(sample, "?tokens=3:").content)
    loaded = safetensors.torch.load_file(file)
    with safe_open(file, "pt") as lazy:
        assert lazy.metadata()["version"] == "2"
        for name in NAMES:
            for tensor in (loaded[name], lazy.get_tensor(name)):
                wanted = rows_of(sample, name)[3:]
                assert str(tensor.dtype) == f"torch.{wanted.dtype.name}"
                assert tuple(tensor.shape) == wanted.shape
                found = tensor.view(torch.uint8).numpy()
                assert found.tobytes() == wanted.tobytes()
            assert lazy.get_slice(name)[2:5].shape[0] == 3
    file.write_bytes(served.batch(ids=[one.sample_id for one in served.samples]).content)
    loaded = safetensors.torch.load_file(file)
    assert loaded["offsets"][-1] == 2 * sum(LENGTHS)


def test_an_etag_is_of_exactly_these_bytes(served: Served) -> None:
    sample, other = served.samples[3:5]
    bodies: dict[str, bytes] = {}
    for one in (sample, other):
        for query in (
            "",
            "?tokens=:",
            "?tokens=1:",
            "?names=final",
            "?names=embed",
            "?names=final&format=raw",
            "?names=final&format=raw&tokens=1:",
        ):
            response = served.get(one, query)
            etag = response.headers["etag"]
            assert not etag.startswith("W/")
            assert bodies.setdefault(etag, response.content) == response.content
            again = served.get(one, query, if_none_match=etag)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
            assert served.get(one, query, if_none_match='"other"').status_code == 200
    assert len(bodies) == 12


def test_head_says_what_get_would_send(served: Served) -> None:
    url = f"{served.version}/samples/{served.samples[4].sample_id}/tensors"
    for query in ("", "?names=final&format=raw", "?tokens=5:9"):
        head, whole = served.client.head(url + query), served.client.get(url + query)
        assert head.content == b""
        different = {"date", "x-request-id"}
        for name in {*head.headers, *whole.headers} - different:
            assert head.headers[name] == whole.headers[name]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("?names=layer9,final,foo", 422, ["'layer9'", "'foo'", "embed, layer2, final, input_ids, loss_mask"]),
        ("?names=", 422, ["got ''"]),
        ("?tokens=0:201", 416, ["200 tokens"]),
        ("?tokens=200:", 416, ["200 tokens"]),
        ("?tokens=5:5", 422, ["at least one token"]),
        ("?tokens=-5:", 422, ["FIRST:END"]),
        ("?format=raw", 422, ["exactly one name", "got 5"]),
        ("?format=json", 422, ["query.format"]),
    ],
)
def test_what_cannot_be_served_says_why(served: Served, query: str, status: int, said: list[str]) -> None:
    response = served.get(served.samples[5], query)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    for words in said:
        assert words in json.dumps(response.json(), ensure_ascii=False)


def test_ranges_that_are_not_one_are_refused(served: Served) -> None:
    sample = served.samples[0]
    size = len(served.get(sample).content)
    for given_range in ("bytes=0-1,2-3", "bytes=" + "0-0," * 3000 + "1-1", f"bytes={size}-"):
        response = served.get(sample, range=given_range)
        assert response.status_code == 416
        assert response.headers["content-range"] == f"bytes */{size}"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": ["x"]},
        {"ids": ["0" * 64], "order": {"positions": [0]}},
        {"order": {"positions": []}},
        {"order": {"positions": [-1]}},
        {"ids": ["0" * 64], "more": 1},
    ],
)
def test_a_batch_that_is_malformed(served: Served, body: dict[str, Any]) -> None:
    assert served.batch(**body).status_code == 422


def test_a_batch_names_every_sample_that_is_not_there(served: Served) -> None:
    response = served.batch(ids=["0" * 64, served.samples[0].sample_id, "1" * 64])
    assert response.status_code == 404
    assert [problem["where"][0] for problem in response.json()["problems"]] == ["0", "1"]


def test_what_is_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    samples = make_dataset(tmp_path)
    ids = [sample.sample_id for sample in samples]
    with client_of(tmp_path, max_response_bytes=4000, max_batch_samples=3) as client:
        version = VERSION.format(1)
        too_many = client.post(f"{version}/batch", json={"ids": ids})
        too_large = client.post(f"{version}/batch", json={"ids": ids[3:6]})
        whole = client.get(f"{version}/samples/{ids[5]}/tensors")
        for response in (too_many, too_large, whole):
            assert response.status_code == 413
            assert response.json()["problems"][0]["repair"]
        part = client.get(f"{version}/samples/{ids[5]}/tensors", headers={"range": "bytes=9000-9999"})
        assert (part.status_code, len(part.content)) == (206, 1000)
        assert client.get(f"{version}/samples/{ids[5]}/tensors?names=final").status_code == 200
