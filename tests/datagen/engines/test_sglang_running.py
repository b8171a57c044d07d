"""The engine `sglang` over a stand-in for its package: what is refused before it starts, ended, and said."""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from datagen.engines.base import Engine
from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.opening import boundary_problems, open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.sglang_inside import PINNED
from schemas.schema import Schema
from tests.datagen.engines.conftest import TinyFolder

Opening = Callable[..., Engine]


class Sglang:
    """Stands for `sglang.Engine`: numbers in the place of states, and what it says it ran."""

    started: "list[Sglang]" = []  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.ended = False
        self.ran: list[list[int]] | None = None
        self.started.append(self)

    def generate(self, **asked: Any) -> list[dict[str, Any]]:
        n_slots = len(self.arguments["return_aux_hidden_state_layer_ids"])
        answers = []
        for index, ids in enumerate(asked["input_ids"]):
            ran = ids if self.ran is None else self.ran[index]
            meta: dict[str, Any] = {
                "id": asked["rid"][index],
                "prompt_tokens": len(ids),
                "cached_tokens": 0,
                "hidden_states": [np.ones((len(ids), n_slots * 48)).tolist()],
            }
            if asked.get("return_logprob"):
                meta["input_token_logprobs"] = [
                    (None if at == 0 else -1.0, one, None) for at, one in enumerate(ran)
                ]
                meta["input_top_logprobs"] = [None, *([(-1.0, one, None)] for one in ran[1:])]
            answers.append({"output_ids": [7], "meta_info": meta})
        return answers

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sglang")
    module.__dict__["Engine"] = Sglang
    monkeypatch.setitem(sys.modules, "sglang", module)
    monkeypatch.setattr("datagen.engines.sglang_inside.version", lambda name: PINNED)
    Sglang.started.clear()


def settings_of(folder: object, **changes: Any) -> EngineSettings:
    return EngineSettings.model_validate(
        {"name": "sglang", "model": str(folder), "dtype": "float32", **changes}
    )


def schema_of(settings: EngineSettings, names: Sequence[str]) -> Schema:
    return Schema.declare(read_target(settings), names, "float32")


def test_an_embedding_that_is_more_than_a_table_is_refused_before_it_starts(tiny_folder: TinyFolder) -> None:
    settings = settings_of(tiny_folder("gpt2"))
    schema = schema_of(settings, ("embed", "layer1"))
    (problem,) = boundary_problems(settings, schema)
    assert problem.where == "embed"
    assert "wpe beside it" in problem.message
    with pytest.raises(OpeningError, match="wpe beside it"):
        open_engine(settings, schema)
    assert Sglang.started == []


def test_the_head_is_read_only_where_it_is_asked(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise OpeningError("the ends of the model cannot be read from its files")

    monkeypatch.setattr("datagen.engines.sglang_running.TargetHead", unreadable)
    settings = settings_of(tiny_folder("llama"))
    engine = open_engine(settings, schema_of(settings, ("layer1", "layer2")))
    (capture,) = engine.submit([[1, 2, 3]]).result()
    assert tuple(capture.tensors) == ("layer1", "layer2")
    with pytest.raises(OpeningError, match="cannot be read from its files"):
        engine.head_argmax(capture.tensors["layer1"])
    engine.close()
    with pytest.raises(OpeningError, match="cannot be read from its files"):
        open_engine(settings, schema_of(settings, ("embed", "layer2")))
    assert [one.ended for one in Sglang.started] == [True, True]


def test_audit_rows_say_what_ran(tiny_folder: TinyFolder) -> None:
    settings = settings_of(tiny_folder("llama"))
    engine = open_engine(settings, schema_of(settings, ("layer1",)))
    (served,) = Sglang.started
    last = engine.target.vocab_size - 1
    served.ran = [[5, 0, 7]]
    (same,) = engine.submit([[5, last, 7]], with_argmax=True).result()
    assert same.token_ids.tolist() == [5, last, 7]
    (other,) = engine.submit([[5, 6, 7]], with_argmax=True).result()
    assert other.token_ids.tolist() == [5, 0, 7]
    served.ran = [[5, 6]]
    with pytest.raises(EngineError, match="expected input_token_logprobs of 3 tokens"):
        engine.submit([[5, 6, 7]], with_argmax=True).result()
    engine.close()
