"""The engine `vllm` passes the contract of engines, in bfloat16."""

from collections.abc import Iterator

import pytest

from datagen.engines.base import Engine
from tests.contract.engine_contract import EngineContract
from tests.with_vllm import small_models
from tests.with_vllm.opened import Kept


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = small_models.save("llama", tmp_path_factory.mktemp("models") / "llama")
    kept = Kept(folder, "bfloat16")
    yield kept
    kept.close()


@pytest.fixture
def engine(kept: Kept) -> Engine:
    return kept.engine()


class TestVllm(EngineContract):
    SAME_TOKEN_TOLERANCE = 0.05
