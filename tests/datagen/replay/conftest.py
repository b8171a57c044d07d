"""A tiny target, saved once, and what states it has."""

from pathlib import Path

import pytest
import torch

from datagen.engines.settings import EngineSettings
from datagen.replay.identify_sources import ModelSource
from tests.datagen.engines import tiny_models

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Llama with 3 layers, 48 wide."""
    return tiny_models.save("llama", tmp_path_factory.mktemp("targets") / "llama")


@pytest.fixture(scope="session")
def in_float32(tiny_target: Path) -> ModelSource:
    """Return the tiny target in float32."""
    return ModelSource.of(EngineSettings(model=str(tiny_target), dtype="float32", device="cpu"))


@pytest.fixture(scope="session")
def in_bfloat16(tiny_target: Path) -> ModelSource:
    """Return the tiny target in bfloat16."""
    return ModelSource.of(EngineSettings(model=str(tiny_target), dtype="bfloat16", device="cpu"))
