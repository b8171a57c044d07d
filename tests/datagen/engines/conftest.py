"""Folders of tiny models, each made once a session."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.datagen.engines import tiny_models

torch.set_num_threads(1)

TinyFolder = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> TinyFolder:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tiny_models.save(name, tmp_path_factory.mktemp("models") / name)
        return made[name]

    return folder
