"""The engine `vllm` over a double of vLLM: the contract, sets of tensors, what it does not start with."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, VllmSettings
from schemas.schema import Schema
from tests.contract.engine_contract import EngineContract
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.vllm_double import Llm, standing_in

NAMES = ("embed", "layer1", "final")
Opening = Callable[..., Engine]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Llm]]:
    with standing_in(monkeypatch) as llm:
        yield llm


@pytest.fixture
def opened(tiny_folder: TinyFolder, double: type[Llm]) -> Iterator[Opening]:
    made: list[Engine] = []

    def opened(names: Sequence[str] = NAMES, model: str = "llama", **own: Any) -> Engine:
        folder = str(tiny_folder(model))
        settings = EngineSettings(name="vllm", model=folder, dtype="float32", vllm=VllmSettings(**own))
        made.append(open_engine(settings, Schema.declare(read_target(settings), names, "float32")))
        return made[-1]

    yield opened
    for engine in made:
        engine.close()
    assert all(llm.ended for llm in double.started)


class TestContract(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-5

    @pytest.fixture
    def engine(self, opened: Opening) -> Engine:
        return opened()


@pytest.mark.parametrize("names", [("layer2", "final_normed"), ("final_normed",), ("embed", "final_normed")])
def test_the_norm_is_handed_out_without_what_it_was_made_of(
    opened: Opening, tiny_folder: TinyFolder, names: tuple[str, ...]
) -> None:
    engine = opened(names)
    ids = [5, 9, 200, 3, 3, 17]
    (got,) = engine.submit([ids]).result()
    hf = EngineSettings(name="hf", model=str(tiny_folder("llama")), dtype="float32", device="cpu")
    other = open_engine(hf, engine.schema)
    (want,) = other.submit([ids]).result()
    assert tuple(got.tensors) == tuple(got.norms) == names
    for name in names:
        assert got.tensors[name].tobytes() == want.tensors[name].tobytes(), name
    other.close()
