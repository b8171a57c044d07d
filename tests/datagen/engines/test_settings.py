"""An engine's settings refuse what cannot be."""

from typing import Any

import pytest
from pydantic import ValidationError

from datagen.engines.settings import EngineSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected a folder or a hub id for the engine hf, got none"),
        ({"name": "synthetic", "model": "m"}, "expected none for the engine synthetic, got 'm'"),
        ({"model": "m", "device": "cpu", "device_map": "auto"}, "expected none with device cpu"),
        ({"model": "m", "dtype": "float64"}, "float16"),
        ({"model": "m", "threads": 0}, "greater than 0"),
        ({"model": "m", "modle": "n"}, "modle"),
        ({"name": "synthetic", "synthetic": {"layers": 3}}, "layers"),
        ({"name": "vllm"}, "expected a folder or a hub id for the engine vllm, got none"),
        ({"name": "vllm", "model": "m", "device_map": "auto"}, "expected none for the engine vllm"),
        ({"name": "vllm", "model": "m", "device": "cpu"}, "expected auto for the engine vllm, .* got 'cpu'"),
        ({"name": "sglang", "model": "m", "threads": 3}, "expected none for the engine sglang, .* got 3"),
        ({"name": "openai", "model": "m", "device": "cuda"}, "expected auto for the engine openai"),
        (
            {"name": "vllm", "model": "m", "vllm": {"arguments": {"enable_prefix_caching": True}}},
            "expected none that the engine sets itself, got enable_prefix_caching",
        ),
    ],
)
def test_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EngineSettings.model_validate(values)


def test_every_field_says_what_it_is() -> None:
    assert {name for name, field in EngineSettings.model_fields.items() if not field.description} == set()


@pytest.mark.parametrize(
    ("engine", "argument", "instead"),
    [
        *(("vllm", name, "engine.model") for name in ("quantization", "load_format", "hf_overrides")),
        ("vllm", "revision", "engine.revision"),
        ("vllm", "data_parallel_size", "workers.count"),
        ("vllm", "kv_cache_dtype", "engine.dtype"),
        ("vllm", "hf_token", "HF_TOKEN"),
        *(("vllm", name, "rests on it") for name in ("model_impl", "decode_context_parallel_size")),
        *(("sglang", name, "engine.model") for name in ("quantization", "json_model_override_args")),
        ("sglang", "kv_cache_dtype", "engine.dtype"),
        ("sglang", "dp_size", "workers.count"),
    ],
)
def test_what_would_change_the_states_is_refused_with_what_to_do(
    engine: str, argument: str, instead: str
) -> None:
    values = {"name": engine, "model": "m", engine: {"arguments": {argument: "x", "seed": 1}}}
    with pytest.raises(ValidationError, match=rf"got {argument} \(.*{instead}.*\)"):
        EngineSettings.model_validate(values)


def test_every_wrong_setting_is_told_at_once() -> None:
    values = {
        "name": "vllm",
        "device": "cpu",
        "device_map": "auto",
        "attn_implementation": "sdpa",
        "threads": 2,
        "dtype": "float64",
        "vllm": {"arguments": {"dtype": "x", "model": "y"}, "tensor_parallel": 0},
    }
    with pytest.raises(ValidationError) as caught:
        EngineSettings.model_validate(values)
    wheres = {".".join(map(str, one["loc"])) for one in caught.value.errors()}
    expected = {"model", "device", "device_map", "attn_implementation", "threads", "dtype"}
    assert wheres == expected | {"vllm.arguments", "vllm.tensor_parallel"}
