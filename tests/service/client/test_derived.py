"""`final_normed` made by the client: the bytes that an export writes, over HTTP and from the files."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datagen.adapters.exports.format import Row, Source
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from schemas.errors import SchemaError
from schemas.schema import DTYPES
from schemas.wiring import TargetRole, expected_target
from schemas.wiring import Wiring as WholeWiring
from service.client.asked import Wiring
from service.client.client import Client
from service.client.errors import RefusedError
from service.client.rows import BITS
from tests.builders import tiny_norm, tiny_schema, tiny_target
from tests.service.serving import make_dataset, serving

VERSION = "/v1/datasets/bfloat16/versions/1"
TARGET = tiny_target(n_layers=8)
NAMES = ("layer2", "layer4", "layer5", "final")
SPECFORGE = Wiring("specforge", ("layer2", "layer4", "layer5"), "final_normed", version="0.2.0")
MODES = pytest.mark.parametrize("direct", [False, True], ids=["http", "direct"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of each dtype with its target's norm, and `bare` without one."""
    root = tmp_path_factory.mktemp("root")
    for dtype in DTYPES:
        schema = tiny_schema(NAMES, dtype, TARGET)
        make_dataset(root, dtype, schema=schema)
        dataset = Dataset.open(open_door(root), dtype)
        dataset.keep_final_norm(schema, tiny_norm(bias=dtype == "float32"))
    make_dataset(root, "bare", schema=tiny_schema(NAMES, target=TARGET))
    make_dataset(root, "early", schema=tiny_schema(NAMES[:3], target=TARGET))
    return root


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with serving(root) as url:
        yield url


def exported(root: Path, dataset: str, sample_id: str, name: str = "final_normed") -> NDArray[np.generic]:
    """Return a sample's tensor as an export reads it."""
    snapshot = Dataset.open(open_door(root), dataset).snapshot()
    wiring = WholeWiring(consumer="mine", kind="trainer", n_layers=8, fc=("layer2",))
    source = Source(snapshot, wiring, snapshot.final_norm())
    row = Row(0, snapshot.location(sample_id))
    return source.tensor(row, name, 0, row.location.n_tokens)


def sample_ids(root: Path, dataset: str) -> list[str]:
    return [*Dataset.open(open_door(root), dataset).snapshot().sample_ids]


def test_the_service_tells_the_norm(url: str, root: Path) -> None:
    with httpx.Client(base_url=url) as client:
        answer = client.get(f"{VERSION}/final_norm")
        assert answer.status_code == 200
        assert answer.json() == tiny_norm().model_dump(mode="json")
        assert client.get(f"{VERSION}/schema").json()["derivable"] == ["final_normed"]
        bare = VERSION.replace("bfloat16", "bare")
        assert client.get(f"{bare}/final_norm").status_code == 404
        assert client.get(f"{bare}/schema").json()["derivable"] == []
        (sample_id, *_) = sample_ids(root, "bfloat16")
        refused = client.get(f"{VERSION}/samples/{sample_id}/tensors", params={"names": "final_normed"})
        assert "final_norm over it" in refused.json()["problems"][0]["repair"]


@MODES
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_what_an_export_writes(url: str, root: Path, dtype: str, direct: bool) -> None:
    names = ("final_normed", "input_ids", "layer2")
    with Client(url, direct=direct) as client:
        version = client.version(dtype)
        for sample_id in sample_ids(root, dtype):
            rows = version.tensors(sample_id, names)
            expected = exported(root, dtype, sample_id)
            assert [*rows.tensors] == ["final_normed", "layer2"]
            assert rows.dtypes["final_normed"] == dtype
            assert rows.tensors["final_normed"].tobytes() == expected.tobytes()
            whole = version.tensors(sample_id, ("final", "final_normed"))
            assert whole.tensors["final_normed"].tobytes() == expected.tobytes()
            assert whole.tensors["final"].tobytes() == exported(root, dtype, sample_id, "final").tobytes()
            n_tokens = len(expected)
            if n_tokens > 3:
                window = version.tensors(sample_id, names, slice(2, n_tokens - 1))
                assert window.tensors["final_normed"].tobytes() == expected[2 : n_tokens - 1].tobytes()


@MODES
def test_batches_and_stacks_have_it_too(url: str, root: Path, direct: bool) -> None:
    ids = sample_ids(root, "bfloat16")
    with Client(url, direct=direct) as client:
        version = client.version("bfloat16")
        for rows, sample_id in zip(version.batch(ids, ("final_normed",)), ids, strict=True):
            assert rows.tensors["final_normed"].tobytes() == exported(root, "bfloat16", sample_id).tobytes()
        for names in (("layer2", "final_normed"), ("final_normed", "final", "layer5")):
            states = version.stack(ids[3], names).states
            for slot, name in enumerate(names):
                expected = exported(root, "bfloat16", ids[3], name)
                assert np.ascontiguousarray(states[:, slot]).tobytes() == expected.tobytes()


@MODES
def test_a_version_with_a_wiring_that_takes_it(url: str, root: Path, direct: bool) -> None:
    with Client(url, direct=direct) as client:
        version = client.version("bfloat16", wiring=SPECFORGE)
        assert version.names == ("layer2", "layer4", "layer5", "final_normed", "input_ids", "loss_mask")
        notes = [note for note in version.notes if note.kind == "derived"]
        assert [note.where for note in notes] == ["target"]
        (first, *_) = sample_ids(root, "bfloat16")
        rows = version.tensors(first)
        assert rows.tensors["final_normed"].tobytes() == exported(root, "bfloat16", first).tobytes()


@MODES
def test_a_stream_in_the_consumers_own_format(url: str, root: Path, direct: bool) -> None:
    with Client(url, direct=direct) as client:
        stream = client.stream(
            "bfloat16", wiring=SPECFORGE, format="consumer", samples_per_batch=2, epochs=1, seed=0
        )
        n_seen = 0
        for batch in stream:
            for row, sample_id in enumerate(batch.sample_ids):
                expected = exported(root, "bfloat16", sample_id)
                made = batch.inputs["target"][row, : len(expected)]
                assert made.contiguous().view(torch.uint8).numpy().tobytes() == expected.tobytes()
                n_seen += 1
        assert n_seen == len(sample_ids(root, "bfloat16"))


def test_without_a_norm_it_is_refused_with_what_to_do(url: str, root: Path) -> None:
    with Client(url, direct=False) as client:
        for name, repair in (("bare", "strata norm"), ("early", "add final_normed to tensors.names")):
            with pytest.raises(RefusedError) as caught:
                client.version(name, wiring=SPECFORGE)
            (problem,) = [found for found in caught.value.problems if found.severity == "error"]
            assert (problem.role, problem.expected) == ("target", "final_normed")
            assert repair in (problem.repair or "")
            with pytest.raises(SchemaError, match="got 'final_normed'"):
                client.version(name).tensors(sample_ids(root, name)[0], ("final_normed",))


def test_the_gate_lets_it_through_and_refuses_it_without(url: str) -> None:
    role = TargetRole(tensor="final_normed", applies_norm=False)
    assert expected_target(role) == "final_normed"
    wiring = WholeWiring(consumer="mine", kind="trainer", n_layers=8, fc=("layer2",), target=role)
    headers = {"Strata-Wiring": wiring.to_json().decode()}
    with httpx.Client(base_url=url) as client:
        assert client.get(f"{VERSION}/schema", headers=headers).status_code == 200
        answer = client.get(f"{VERSION.replace('bfloat16', 'bare')}/schema", headers=headers)
        assert answer.status_code == 409
        assert "strata norm" in answer.json()["problems"][0]["repair"]


def test_a_norm_that_is_kept_later_counts_at_once(url: str, root: Path) -> None:
    schema = tiny_schema(NAMES, target=TARGET)
    make_dataset(root, "later", schema=schema)
    with Client(url, direct=False) as client:
        with pytest.raises(RefusedError):
            client.version("later", wiring=SPECFORGE)
        Dataset.open(open_door(root), "later").keep_final_norm(schema, tiny_norm())
        version = client.version("later", wiring=SPECFORGE)
        (first, *_) = sample_ids(root, "later")
        rows = version.tensors(first, ("final_normed",))
        bits = rows.tensors["final_normed"]
        assert bits.dtype == BITS["bfloat16"]
        assert bits.tobytes() == exported(root, "later", first).tobytes()
