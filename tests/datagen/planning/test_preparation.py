"""What is known before a model is loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from datagen.config import RunConfig
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.planning import preparation
from datagen.planning.preparation import prepare, provenance_of
from schemas.target import Target
from tests.datagen.run_builders import synthetic_config, write_prompts


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A run of a base model: its tokenizer has no chat template."""
    write_prompts(tmp_path / "prompts.jsonl", [4, 8])
    target: Target = preparation.read_target(synthetic_config(tmp_path).engine)  # type: ignore[attr-defined]
    monkeypatch.setattr("datagen.planning.preparation.read_target", lambda engine: target)
    monkeypatch.setattr("datagen.planning.preparation.engine_version", lambda engine: "1")
    monkeypatch.setattr("datagen.planning.preparation.longest_sample", lambda engine: None)
    monkeypatch.setattr(
        "datagen.planning.rendering.load_tokenizer", lambda *_, **__: SimpleNamespace(chat_template=None)
    )
    return synthetic_config(tmp_path, engine__name="hf", engine__model="base-model")


def test_a_model_without_a_chat_template_takes_prompts_that_are_tokens(config: RunConfig) -> None:
    assert [prompt.n_tokens for prompt in prepare(config, "run").prompts] == [4, 8]


def test_and_refuses_messages_by_name(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    with pytest.raises(ConfigError, match="no chat template to render them"):
        prepare(config, "run")


@pytest.mark.parametrize(("name", "kept"), [("vllm", {"block_size": 32}), ("sglang", {}), ("hf", {})])
def test_what_goes_to_the_engine_as_it_is_is_provenance(
    config: RunConfig, name: str, kept: dict[str, int]
) -> None:
    engine = EngineSettings.model_validate(
        {"name": name, "model": "m", "vllm": {"arguments": {"block_size": 32}}}
    )
    made = provenance_of(config.model_copy(update={"engine": engine}), None)
    assert made.engine_arguments == kept
