"""Which tensors an audit set has, by what an engine can give; none is asked here but by a config file."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from datagen.engines.opening import giving
from datagen.engines.settings import EngineSettings, OpenaiSettings
from datagen.planning.audit_names import AuditNames, audit_names, shortened
from schemas.boundary import all_names
from schemas.problem import Problem
from schemas.schema import Schema
from tests.builders import tiny_schema, tiny_target

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 1000,
}
TARGET = tiny_target().model_copy(update={"model_type": "llama"})


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "config.json"
    file.write_text(json.dumps(CONFIG))
    return file


def named(settings: EngineSettings, config: Path, names: Sequence[str]) -> AuditNames:
    return audit_names(giving(settings, config), tiny_schema(names, target=TARGET))


def test_an_engine_that_gives_all_lacks_nothing(config: Path) -> None:
    found = named(EngineSettings(name="hf", model="m"), config, ("layer2",))
    assert found == AuditNames(all_names(4))
    assert found.said == "every boundary"


def test_sglang_gives_what_it_is_started_with_and_the_embedding_of_the_files(config: Path) -> None:
    found = named(EngineSettings(name="sglang", model="m"), config, ("layer2",))
    assert found.names == ("embed", "layer2")
    assert found.lacking == ("layer1", "layer3", "final", "final_normed")
    assert "got the output of the last, which SGLang never gives" in found.said


def test_a_server_gives_what_is_declared_of_it(config: Path) -> None:
    own = OpenaiSettings(shared_folder="/states", layer_ids=(2, 4))
    found = named(EngineSettings(name="openai", model="m", openai=own), config, ("layer2", "final"))
    assert found.names == ("embed", "layer2", "final", "final_normed")
    assert found.lacking == ("layer1", "layer3")
    assert "expected layers 1, 3 among those that the server captures, got [2, 4]" in found.said


def test_what_is_given_alone_and_not_together_is_left_out() -> None:
    """An engine that gives any one tensor beside the run's own: those are all that it is asked for."""

    def one_more(opened: Schema, asked: Schema) -> list[Problem]:
        beside = set(asked.names) - set(opened.names)
        message = f"expected one more, got {len(beside)}"
        return [Problem(where="tensors", kind="boundary", message=message)] if len(beside) > 1 else []

    found = audit_names(one_more, tiny_schema())
    assert found.names == ("embed", "layer2", "final")
    assert found.lacking == ("layer1", "layer3", "final_normed")
    assert found.said == "3 tensors; without layer1, layer3, final_normed (expected one more, got 3)"


def test_many_names_are_shortened() -> None:
    assert shortened(all_names(61)) == "embed, layer1, layer2, layer3, layer4, layer5 and 57 more"
