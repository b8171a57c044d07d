"""What is said of the workers at the start of a run, and what of it goes into the run's record."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from datagen.driver.greeting import greet
from datagen.engines.base import EngineInfo
from datagen.engines.said import in_a_line, said_by
from datagen.engines.settings import EngineSettings
from datagen.errors import FleetError
from datagen.worker.actor import WorkerFacts
from tests.builders import tiny_target
from tests.datagen.driver.local_fleet import Said

ENGINE = EngineSettings(name="openai", model="a-model")
PREPARED: Any = SimpleNamespace(
    provenance=SimpleNamespace(engine_version="vllm 0.32.0 over http"), target=tiny_target()
)
SERVER = {
    "layer_ids": "0, 2, 4",
    "proven": "embed, final",
    "unproven": "layer2",
    "embed": "the server's slot",
}


def worker(host: str, said: dict[str, str], version: str = "vllm 0.32.0 over http") -> WorkerFacts:
    info = EngineInfo("openai", version, "bfloat16", "a server's", said)
    return WorkerFacts(host, 1, info, tiny_target())


def greeted(*workers: WorkerFacts) -> tuple[dict[str, str], str]:
    said = Said()
    return dict(greet(workers, PREPARED, ENGINE, cast(Any, said))), said.text


def test_what_is_taken_on_trust_is_said_first() -> None:
    kept, told = greeted(worker("a", SERVER), worker("b", SERVER))
    assert kept == SERVER
    assert told == (
        "fleet: 2 workers ready: openai on a server's, bfloat16, vllm 0.32.0 over http\n"
        "engine: unproven, so taken on trust: layer2; layer_ids: 0, 2, 4; proven: embed, final; "
        "embed: the server's slot"
    )


def test_workers_that_differ_are_all_kept() -> None:
    kept, _ = greeted(worker("a", {"device_map": "cuda:0"}), worker("b", {"device_map": "cuda:1"}))
    assert kept == {"device_map": "cuda:0 | cuda:1"}


def test_an_engine_without_a_word_is_greeted_without_one() -> None:
    assert greeted(worker("a", {})) == (
        {},
        "fleet: 1 workers ready: openai on a server's, bfloat16, vllm 0.32.0 over http",
    )


def test_other_software_is_refused() -> None:
    with pytest.raises(FleetError, match=r"expected vllm 0\.32\.0 over http, got vllm 0\.33\.0 over http"):
        greeted(worker("a", SERVER), worker("b", SERVER, "vllm 0.33.0 over http"))


def test_nothing_on_trust_is_told_as_it_is() -> None:
    said = said_by([{"runner": "V1"}, {}])
    assert in_a_line(said) == "runner: V1"
