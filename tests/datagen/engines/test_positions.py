"""Samples whose position code would depend on their neighbours do not share a forward."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from datagen.engines.errors import BatchError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.positions import PositionRule, position_rule, together
from datagen.engines.settings import EngineSettings
from schemas.schema import Schema
from tests.contract.engine_contract import token_errors
from tests.datagen.engines import tiny_models

TRAINED = 16
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": TRAINED,
}
DYNAMIC = {
    "rope_type": "dynamic",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}


def saved(folder: Path, rope: dict[str, Any]) -> EngineSettings:
    config = transformers.Qwen3Config(**tiny_models._GROUPED, rope_parameters=dict(rope))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny_models.save_tokenizer(folder)
    return EngineSettings(model=str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        (None, PositionRule(128, None)),
        ({"rope_type": "default"}, PositionRule(128, None)),
        ({"rope_type": "yarn", "original_max_position_embeddings": 16}, PositionRule(128, None)),
        (LONGROPE, PositionRule(128, 16)),
        (DYNAMIC, PositionRule(16, None)),
        ({"full_attention": LONGROPE, "sliding_attention": {"rope_type": "default"}}, PositionRule(128, 16)),
    ],
)
def test_reads_the_config(parameters: Any, rule: PositionRule) -> None:
    config = transformers.PretrainedConfig()
    config.max_position_embeddings = 128
    config.rope_parameters = parameters
    assert position_rule(config) == rule


def test_a_model_without_positions_has_no_limit() -> None:
    assert position_rule(transformers.BloomConfig()) == PositionRule(None, None)


def test_one_group_where_nothing_parts() -> None:
    assert together([5, 500], PositionRule(1000, None)) == [[0, 1]]
    assert together([500, 600], PositionRule(1000, 16)) == [[0, 1]]


def test_longrope_short_samples_keep_their_frequencies_beside_long_ones(tmp_path: Path) -> None:
    settings = saved(tmp_path / "longrope", LONGROPE)
    target = read_target(settings)
    engine = open_engine(settings, Schema.declare(target, ["layer1", "final"], "float32"))
    short, long = list(range(TRAINED)), list(range(3 * TRAINED))
    mixed = engine.submit([long, short, long]).result()
    assert [len(capture.token_ids) for capture in mixed] == [48, 16, 48]
    (alone,) = engine.submit([short]).result()
    for name in engine.schema.names:
        assert token_errors(mixed[1].tensors[name], alone.tensors[name]).max() <= 1e-5
        # The long ones have other frequencies from the first token on: so mixing would have shown.
        assert token_errors(mixed[0].tensors[name][:TRAINED], alone.tensors[name]).max() > 1e-3


def test_dynamic_scaling_is_refused_beyond_the_trained_length(tmp_path: Path) -> None:
    settings = saved(tmp_path / "dynamic", DYNAMIC)
    engine = open_engine(settings, Schema.declare(read_target(settings), ["final"], "float32"))
    engine.submit([[1] * TRAINED]).result()
    with pytest.raises(BatchError, match=f"expected at most {TRAINED} tokens"):
        engine.submit([[1] * (TRAINED + 1)])
