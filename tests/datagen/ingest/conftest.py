"""A tiny target, saved once, whose own states stand in somebody's files."""

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
def source(tiny_target: Path) -> ModelSource:
    """Return the tiny target in float32."""
    return ModelSource.of(EngineSettings(model=str(tiny_target), dtype="float32", device="cpu"))
