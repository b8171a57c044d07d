"""What is known before a model is loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from datagen.config import RunConfig
from datagen.errors import ConfigError
from datagen.planning import preparation
from datagen.planning.preparation import prepare
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
