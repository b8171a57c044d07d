"""Every engine passes the one contract."""

from collections.abc import Iterator

import pytest

from datagen.engines.base import Engine
from datagen.engines.opening import engine_version, longest_sample, open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from schemas.schema import DType, Schema
from tests.contract.engine_contract import EngineContract
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import LONGEST

NAMES = ("embed", "layer2", "final", "final_normed")


def opened(settings: EngineSettings) -> Engine:
    return open_engine(settings, Schema.declare(read_target(settings), NAMES, settings.dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
class TestSynthetic(EngineContract):
    @pytest.fixture
    def engine(self, dtype: DType) -> Engine:
        shape = SyntheticSettings(n_layers=4, hidden_size=24, vocab_size=300)
        return opened(EngineSettings(name="synthetic", dtype=dtype, synthetic=shape))


@pytest.mark.parametrize("family", ["llama", "gpt2", "deepseek_v3"])
class TestHfInFloat32(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-4

    @pytest.fixture
    def engine(self, family: str, tiny_folder: TinyFolder) -> Iterator[Engine]:
        engine = opened(EngineSettings(model=str(tiny_folder(family)), dtype="float32", device="cpu"))
        yield engine
        engine.close()


class TestHfInBfloat16(EngineContract):
    SAME_TOKEN_TOLERANCE = 0.05

    @pytest.fixture
    def engine(self, tiny_folder: TinyFolder) -> Iterator[Engine]:
        engine = opened(EngineSettings(model=str(tiny_folder("llama")), device="cpu"))
        yield engine
        engine.close()


def test_the_version_is_known_before_the_engine_is_open(tiny_folder: TinyFolder) -> None:
    for settings in (
        EngineSettings(name="synthetic"),
        EngineSettings(model=str(tiny_folder("llama")), device="cpu"),
    ):
        assert engine_version(settings) == opened(settings).info.version


def test_the_longest_sample_is_known_before_the_engine_is_open(tiny_folder: TinyFolder) -> None:
    assert longest_sample(EngineSettings(name="synthetic")) is None
    assert longest_sample(EngineSettings(model=str(tiny_folder("gpt2")))) == LONGEST
