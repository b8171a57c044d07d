"""What is known before a model is loaded, and that all that is wrong is told at once."""

from pathlib import Path

import pytest

from datagen.errors import ConfigError
from datagen.preparation import prepare
from tests.datagen.run_builders import synthetic_config, write_prompts

MODEL = Path(__file__).parents[2] / "data" / "models" / "smollm2-135m-instruct"


def test_prompts_target_and_schema_come_together(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", [4, 5, 6])
    prepared = prepare(synthetic_config(tmp_path), "run")
    assert prepared.n_tokens == 15
    assert prepared.schema.target == prepared.target
    assert prepared.provenance.engine == "synthetic"
    assert not (tmp_path / "data").exists()


def test_samples_beyond_the_models_positions_are_refused_before_it_is_loaded(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts.jsonl", [4])
    changes = {
        "engine__name": "hf",
        "engine__model": str(MODEL),
        "prompts__max_tokens": 9000,
        "tensors__names": "embed,layer30",
    }
    with pytest.raises(ConfigError) as caught:
        prepare(synthetic_config(tmp_path, **changes), "run")
    told = str(caught.value)
    assert "prompts.max_tokens: expected at most the 8192 positions of the model, got 9000" in told
    assert "layer30: expected a layer between 1 and 29" in told
