"""A request that means another schema or wiring is refused before anything is read, with every problem."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.builders import tiny_schema
from tests.service.serving import client_of, make_dataset

VERSION = "/v1/datasets/demo/versions/1"
FITS = {
    "consumer": "mine",
    "kind": "trainer",
    "n_layers": 4,
    "fc": ["embed", "layer2"],
    "target": {"tensor": "final", "applies_norm": True},
}
LACKS = {**FITS, "fc": ["layer1", "layer2", "layer3"]}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root)
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def asked(client: httpx.Client, path: str = "", **meant: object) -> httpx.Response:
    headers = {}
    if "schema" in meant:
        headers["Strata-Schema"] = str(meant["schema"])
    if "wiring" in meant:
        wiring = meant["wiring"]
        headers["Strata-Wiring"] = wiring if isinstance(wiring, str) else json.dumps(wiring)
    return client.get(VERSION + path, headers=headers)


def test_what_fits_passes(client: httpx.Client) -> None:
    answer = asked(client, schema=tiny_schema().fingerprint, wiring=FITS)
    assert answer.status_code == 200
    assert answer.headers["strata-schema"] == tiny_schema().fingerprint


def test_every_problem_is_data(client: httpx.Client) -> None:
    answer = asked(client, schema="0" * 64, wiring=LACKS)
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    problems = answer.json()["problems"]
    assert {each["where"].partition("[")[0] for each in problems} >= {"schema_fingerprint", "fc"}
    slots = {(each["role"], each["slot"], each.get("expected")) for each in problems if "slot" in each}
    assert {("fc", 0, "layer1"), ("fc", 2, "layer3")} <= slots
    assert all(each["message"].startswith("expected ") for each in problems)


@pytest.mark.parametrize(
    "path", ["", "/schema", "/stats", "/samples", "/samples/" + "0" * 64, "/order", "/order/table"]
)
def test_every_answer_of_a_version_is_behind_it(client: httpx.Client, path: str) -> None:
    assert asked(client, path, schema="0" * 64).status_code == 409


@pytest.mark.parametrize(
    "wiring",
    [
        "",
        "speculators",
        '"speculators"',
        "{}",
        "[1]",
        "{" * 10_000,
        json.dumps({**FITS, "fc": ["layer99"]}),
        "\xff",
    ],
    ids=["empty", "word", "name", "nothing", "list", "deep", "no tensor", "latin"],
)
def test_what_is_no_wiring_is_malformed(client: httpx.Client, wiring: str) -> None:
    answer = client.get(VERSION, headers=[(b"Strata-Wiring", wiring.encode("latin-1"))])
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["where"].startswith("Strata-Wiring")


def test_a_malformed_wiring_and_another_schema_are_told_together(client: httpx.Client) -> None:
    answer = asked(client, schema="0" * 64, wiring="{}")
    assert [each["where"] for each in answer.json()["problems"]] == ["schema_fingerprint", "Strata-Wiring.fc"]


def test_a_verdict_is_the_same_when_it_is_asked_for_again(client: httpx.Client) -> None:
    first, again = (asked(client, wiring=LACKS) for _ in range(2))
    assert first.status_code == again.status_code == 409
    assert first.json()["problems"] == again.json()["problems"]
    assert asked(client, wiring=FITS).status_code == 200
