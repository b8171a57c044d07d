"""The engine `vllm` passes the contracts of engines and of answers, in float32."""

from collections.abc import Iterator

import pytest

from datagen.engines.base import Engine
from schemas.schema import Schema
from tests.contract.answering_contract import AnsweringContract
from tests.contract.engine_contract import EngineContract
from tests.with_vllm import small_models
from tests.with_vllm.opened import Kept


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = small_models.save("llama", tmp_path_factory.mktemp("models") / "llama")
    kept = Kept(folder, "float32")
    yield kept
    kept.close()


@pytest.fixture
def engine(kept: Kept) -> Engine:
    return kept.engine()


class TestAnswers(AnsweringContract):
    pass


class TestVllm(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-4


def test_the_norm_is_handed_out_without_what_it_is_made_of(engine: Engine) -> None:
    ids = [5, 9, 200, 3, 3, 17]
    names = ("layer1", "final_normed")
    whole = engine.handing_out(Schema.declare(engine.target, (*names, "final"), "float32"))
    (want,) = whole.submit([ids]).result()
    (got,) = engine.handing_out(Schema.declare(engine.target, names, "float32")).submit([ids]).result()
    assert tuple(got.tensors) == names
    for name in names:
        assert got.tensors[name].tobytes() == want.tensors[name].tobytes(), name
