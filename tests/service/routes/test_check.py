"""`POST /v1/check` says what `strata check` says."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from datagen.wiring.checking import Asked, check
from schemas.card import Card
from schemas.judging import as_data
from schemas.wiring import Wiring
from service.access.keys import KeyFile
from tests.builders import tiny_schema, tiny_target
from tests.service.serving import client_of, make_dataset

TARGET = tiny_target(n_layers=61)
WIRING = {
    "consumer": "mine",
    "kind": "trainer",
    "n_layers": 61,
    "fc": ["layer3", "layer31", "layer59"],
    "target": {"tensor": "final", "applies_norm": True},
}
CARD = Card(target=TARGET, wiring=Wiring.model_validate(WIRING), contract=None, dataset=None)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make_dataset(root, schema=tiny_schema(("embed", "layer3", "layer31", "layer59", "final"), target=TARGET))
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with client_of(root) as client:
        yield client


def told(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/check", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    "asked",
    [
        {"trainer": "speculators==0.4.0", "server": "sglang==0.5.23"},
        {"trainer": "specforge==0.2.0", "trainer_ids": [2, 30, 58]},
        {"server": "vllm"},
        {"trainer": "nobody"},
    ],
    ids=lambda asked: "+".join(asked),
)
def test_it_says_what_the_command_says(client: httpx.Client, root: Path, asked: dict[str, Any]) -> None:
    got = told(client, dataset="demo", **asked)
    ids = {"trainer_ids": tuple(asked["trainer_ids"])} if "trainer_ids" in asked else {}
    expected = as_data(check(Asked(dataset=f"{root}/demo", **{**asked, **ids})))
    assert got.pop("dataset") == "demo@1"
    assert str(expected.pop("dataset")).endswith("/demo@1")
    assert got == json.loads(json.dumps(expected).replace("--trainer-ids", "trainer_ids"))


def test_a_wiring_and_a_card_are_judged(client: httpx.Client) -> None:
    assert told(client, dataset="demo", wiring=WIRING)["ok"] is True
    assert told(client, dataset="demo", card=CARD.model_dump(mode="json"))["ok"] is True
    wrong = told(client, dataset="demo", wiring={**WIRING, "fc": ["layer3", "layer30", "layer59"]})
    assert wrong["ok"] is False
    assert [(each["role"], each["slot"], each["expected"]) for each in wrong["problems"] if each["slot"]] == [
        ("fc", 1, "layer30")
    ]
    alone = told(client, card=CARD.model_dump(mode="json"), server="sglang==0.5.23")
    assert alone["dataset"] is None
    assert alone["server"] is not None


def test_what_is_missing_is_told_in_the_words_of_the_request(client: httpx.Client) -> None:
    answer = client.post("/v1/check", json={"trainer_ids": [1], "server_args": "--x", "raw": True})
    assert answer.status_code == 422
    problems = answer.json()["problems"]
    assert [each["where"] for each in problems] == [
        "trainer_ids",
        "raw",
        "check",
        "server_args",
        "body.dataset",
    ]
    assert not any("--" in each["message"] for each in problems)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"dataset": "nobody", "server": "vllm"}, 404),
        ({"dataset": "demo", "version": "9", "server": "vllm"}, 404),
        ({"dataset": "..", "server": "vllm"}, 404),
        ({"dataset": "demo", "wiring": {}}, 422),
        ({"dataset": "demo", "wiring": {**WIRING, "fc": ["layer99"]}}, 422),
        ({"dataset": "demo", "card": {}}, 422),
        ({"dataset": "demo", "servr": "vllm"}, 422),
        ({"dataset": "demo", "server": "x" * 129}, 422),
        ({"dataset": 7, "server": "vllm"}, 422),
        ([], 422),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused(client: httpx.Client, body: Any, status: int) -> None:
    answer = client.post("/v1/check", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["problems"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nan",
        b'{"dataset": NaN}',
        b'{"wiring": {"n_layers": Infinity}, "dataset": "demo"}',
        b'{"wiring": ' + b"[" * 100_000,
        b'{"draft_config": ' + b'{"a":' * 100_000,
        b"\xff",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_what_is_no_json_is_malformed(client: httpx.Client, content: bytes) -> None:
    answer = client.post("/v1/check", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert math.isfinite(answer.json()["status"])


def test_numbers_that_json_has_not_are_judged_and_not_repeated(client: httpx.Client) -> None:
    config = b'{"rope_theta": NaN, "num_hidden_layers": Infinity}'
    content = b'{"draft_config": %b, "dataset": "demo", "server": "vllm"}' % config
    answer = client.post("/v1/check", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200

    def refuse(number: str) -> float:
        raise ValueError(f"expected no {number} in an answer")

    assert json.loads(answer.text, parse_constant=refuse)["ok"] is False


@pytest.mark.parametrize("dataset", ["demo", "nobody"])
def test_a_dataset_without_a_grant_is_refused_whether_or_not_it_is_there(
    root: Path, tmp_path: Path, dataset: str
) -> None:
    """Here the dataset is named in the body, where no path tells of it."""
    file = KeyFile(tmp_path / "keys.json")
    key = file.create("trainer", "read", ("other",))
    with client_of(root, keys=tmp_path / "keys.json") as client:
        sent = {"Authorization": f"Bearer {key.written}"}
        answer = client.post("/v1/check", json={"dataset": dataset, "server": "vllm"}, headers=sent)
        assert answer.status_code == 403
        assert client.post("/v1/check", json={"dataset": dataset, "server": "vllm"}).status_code == 401
        assert client.get("/v1/datasets", headers=sent).json() == {"datasets": []}
