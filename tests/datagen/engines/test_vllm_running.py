"""The engine `vllm` over a double of vLLM: the contract, sets of tensors, what it does not start with."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from datagen.engines.base import Engine
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.sampling import Sampling
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


def test_no_draft_is_taken(opened: Opening, double: type[Llm]) -> None:
    opened()
    (llm,) = double.started
    assert llm.scheduler.update_draft_token_ids(["a draft"]) is None


def test_a_vllm_that_takes_drafts_elsewhere_is_refused_and_ended(
    opened: Opening, double: type[Llm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(double, "takes_drafts", "accept_draft_token_ids")
    with pytest.raises(OpeningError, match="without update_draft_token_ids"):
        opened()
    assert double.started[0].ended


def test_a_decoder_without_ends_gives_what_needs_none(
    opened: Opening, double: type[Llm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(double, "without_ends", "expected Body to have norm or norm_f, got another")
    with pytest.raises(OpeningError, match="Body to have norm or norm_f"):
        opened(("layer1", "final_normed"))
    assert double.started[0].ended
    engine = opened(("layer1", "final"))
    (capture,) = engine.submit([[1, 2, 3]]).result()
    with pytest.raises(EngineError, match="the head cannot be asked"):
        engine.head_argmax(capture.tensors["final"])
    with pytest.raises(OpeningError, match="does not show the ends"):
        engine.handing_out(Schema.declare(engine.target, ["final_normed"], "float32"))


@pytest.mark.parametrize("name", ["norm", "norm_f"])
@pytest.mark.usefixtures("double")
def test_the_norm_is_found_by_either_name(name: str) -> None:
    reach = import_module("datagen.engines.vllm_reach").Reach
    norm = torch.nn.RMSNorm(4, eps=1e-6)
    model = SimpleNamespace(model=SimpleNamespace(embed_input_ids=None, **{name: norm}))
    worker = type(
        "Worker", (reach,), {"rank": 0, "device": torch.device("cpu"), "get_model": lambda _: model}
    )()
    rows = torch.randn(3, 4)
    assert worker.strata_facts()["ends"] == ""
    made = np.frombuffer(worker.strata_norm(rows.numpy().tobytes()), np.float32).reshape(3, 4)
    np.testing.assert_array_equal(made, norm(rows).detach().numpy())
    model.model = SimpleNamespace(final_layernorm=norm)
    assert "norm or norm_f and embed_input_ids" in worker.strata_facts()["ends"]


def test_a_temperature_that_vllm_would_change_is_not_asked(opened: Opening) -> None:
    sampling = Sampling(max_tokens=4, sample_tokens=32, temperature=0.001)
    with pytest.raises(EngineError, match=r"the temperature 0\.001, got 0\.01"):
        opened().answer([[1, 2, 3]], sampling, [0])  # type: ignore[attr-defined]
