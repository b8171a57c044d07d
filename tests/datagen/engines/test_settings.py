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
        (
            {"name": "vllm", "model": "m", "device_map": "auto"},
            "device_map: expected none for the engine vllm",
        ),
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
