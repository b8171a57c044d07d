"""The engine `sglang` against SGLang's own code, as far as a CPU runs it: no model of it is loaded.

Its validation of the arguments, the ids that its models take, and the shape of what comes back are theirs,
cut out of the released wheel. What was not run is the whole: `sglang.Engine` needs a GPU.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from datagen.engines.errors import EngineError, OpeningError
from datagen.engines.identity import read_target
from datagen.engines.opening import boundary_problems, longest_sample, open_engine
from datagen.engines.settings import EngineSettings, SglangSettings
from datagen.engines.sglang_inside import PINNED, SglangLayers, layers_of
from datagen.engines.sglang_running import Running, SglangEngine, arguments_of, states_of
from schemas.schema import Schema
from tests.contract.engine_contract import token_errors
from tests.datagen.engines import tiny_models
from tests.datagen.engines.state_server import tensor_of
from tests.oracle.borrow import borrow
from tests.oracle.sglang_code import is_cached
from tests.oracle.wheels import source

pytestmark = pytest.mark.skipif(not is_cached(PINNED), reason=f"sglang {PINNED} is not at hand: make oracle")

NAMES = ("embed", "layer1", "layer2")
OWNER = "SchedulerBatchResultProcessor"


def srt() -> Path:
    return source("sglang", PINNED) / "srt"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def settings(model: Path) -> EngineSettings:
    own = SglangSettings(mem_fraction_static=0.7, context_length=64)
    return EngineSettings(name="sglang", model=str(model), dtype="float32", sglang=own)


def hf(model: Path, names: Sequence[str]) -> Any:
    settings = EngineSettings(name="hf", model=str(model), dtype="float32", device="cpu")
    return open_engine(settings, schema_of(model, names))


def schema_of(model: Path, names: Sequence[str]) -> Schema:
    settings = EngineSettings(name="hf", model=str(model), dtype="float32", device="cpu")
    return Schema.declare(read_target(settings), names, "float32")


class ServedByTheirs:
    """Stands for `sglang.Engine`: states of transformers, cut into chunks and listed by SGLang's own code."""

    def __init__(self, model: Path, boundaries: Sequence[str], chunk: int) -> None:
        self.engine = hf(model, boundaries)
        self.names = boundaries
        self.chunk = chunk
        self.asked: list[dict[str, Any]] = []
        path = srt() / "managers" / "scheduler_components" / "batch_result_processor.py"
        self.append = borrow(path, f"{OWNER}._append_prefill_hidden_states")

    def generate(self, **asked: Any) -> list[dict[str, Any]]:
        self.asked.append(asked)
        answers = []
        for ids, name in zip(asked["input_ids"], asked["rid"], strict=True):
            (capture,) = self.engine.submit([ids], with_argmax=True).result()
            states = torch.cat([tensor_of(capture.tensors[one]) for one in self.names], dim=-1)
            req = SimpleNamespace(hidden_states=[], return_hidden_states=True)
            mode = SimpleNamespace(is_full=lambda: True, is_last=lambda: False)
            for start in range(0, len(ids), self.chunk):
                some = states[start : start + self.chunk]
                self.append(
                    None,
                    req=req,
                    logits_output=SimpleNamespace(hidden_states=some),
                    hidden_state_offset=0,
                    capture_hidden_mode=mode,
                    extend_input_len=len(some),
                )
            top = [None, *([(-1.0, int(one), None)] for one in capture.argmax[:-1])]
            meta = {
                "id": name,
                "prompt_tokens": len(ids),
                "cached_tokens": 0,
                "hidden_states": req.hidden_states,
                "input_top_logprobs": top,
                "input_token_logprobs": [
                    (None if at == 0 else -1.0, one, None) for at, one in enumerate(ids)
                ],
            }
            answers.append({"output_ids": [int(capture.argmax[-1])], "meta_info": meta})
        return answers[::-1]

    def shutdown(self) -> None:
        self.engine.close()


def running(settings: EngineSettings, served: Any, names: Sequence[str]) -> SglangEngine:
    schema = schema_of(Path(settings.model or ""), names)
    layers = layers_of(schema, SimpleNamespace())
    assert isinstance(layers, SglangLayers)
    thread = ThreadPoolExecutor(1)
    return SglangEngine(Running(served, thread, settings, layers, "sglang of a test"), schema, layers)


@pytest.mark.parametrize("chunk", [4, 1000])
def test_what_comes_back_is_told_apart_by_tensor(model: Path, settings: EngineSettings, chunk: int) -> None:
    served = ServedByTheirs(model, ("layer1", "layer2"), chunk)
    engine = running(settings, served, NAMES)
    batch = [[5, 9, 200, 3, 3, 17, 8], [1], [2, 3]]
    want = hf(model, NAMES)
    for got, right in zip(
        engine.submit(batch, with_argmax=True).result(),
        want.submit(batch, with_argmax=True).result(),
        strict=True,
    ):
        assert got.token_ids.tolist() == right.token_ids.tolist()
        assert got.argmax is not None
        assert got.argmax.tolist() == right.argmax.tolist()
        for name in NAMES:
            assert token_errors(got.tensors[name], right.tensors[name]).max() < 1e-5, name
            np.testing.assert_allclose(got.norms[name], right.norms[name], rtol=1e-5)
    (asked,) = served.asked
    assert asked["return_hidden_states"] is True
    assert asked["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}
    final = hf(model, ("final",))
    (capture,) = final.submit([batch[0]], with_argmax=True).result()
    assert engine.head_argmax(capture.tensors["final"]).tolist() == capture.argmax.tolist()
    with pytest.raises(OpeningError, match=r"expected the layers \(0, 1\) that SGLang was started with"):
        engine.handing_out(schema_of(model, ("layer1",)))
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.submit([[1]])


def test_their_validation_takes_what_it_is_started_with(settings: EngineSettings, model: Path) -> None:
    layers = layers_of(schema_of(model, NAMES), SimpleNamespace())
    assert isinstance(layers, SglangLayers)
    asked = arguments_of(settings, layers)
    declared = "".join(path.read_text("utf-8") for path in (srt() / "arg_groups" / "fields").glob("*.py"))
    for name in asked:
        assert f"    {name}: A[" in declared, f"SGLang has no argument {name}"
    assert _validated(asked) == {"speculative_algorithm": None, "aux_hidden_state_capture": "eagle3"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"return_aux_hidden_state_layer_ids": [-1, 3]}, "must be non-negative"),
        ({"return_aux_hidden_state_layer_ids": [1, 1]}, "must not repeat a layer"),
        ({"pp_size": 2}, "only supports pp_size == 1"),
        ({"enable_return_aux_hidden_states": False}, "requires --enable-return-aux-hidden-states"),
    ],
)
def test_their_validation_can_refuse(
    settings: EngineSettings, model: Path, change: dict[str, Any], message: str
) -> None:
    layers = layers_of(schema_of(model, NAMES), SimpleNamespace())
    assert isinstance(layers, SglangLayers)
    with pytest.raises(ValueError, match=message):
        _validated({**arguments_of(settings, layers), **change})


def _validated(asked: dict[str, Any]) -> dict[str, Any]:
    """What their `handle_aux_hidden_state_capture` decides on these arguments."""
    decided: dict[str, Any] = {}
    defaults = {"speculative_draft_model_path": None, "pp_size": 1}
    path = srt() / "arg_groups" / "validation_hook.py"
    given = {
        "resolving_view": lambda args: args,
        "declare_resolution": lambda args, where, **told: decided.update(told),
    }
    borrow(path, "handle_aux_hidden_state_capture", given)(SimpleNamespace(**{**defaults, **asked}))
    return decided


def test_what_it_cannot_give_is_refused_at_plan_time(
    settings: EngineSettings, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OpeningError, match=f"expected the package sglang {PINNED} .*, got none"):
        boundary_problems(settings, schema_of(model, NAMES))
    monkeypatch.setattr("datagen.engines.sglang_inside.version", lambda name: PINNED)
    assert boundary_problems(settings, schema_of(model, NAMES)) == []
    refused = boundary_problems(settings, schema_of(model, ("layer1", "final", "final_normed")))
    assert [problem.where for problem in refused] == ["final", "final_normed"]
    (alone,) = boundary_problems(settings, schema_of(model, ("embed",)))
    assert "none that SGLang captures" in alone.message
    assert longest_sample(settings) == 63


def test_a_scaled_embedding_is_refused(model: Path) -> None:
    found = layers_of(schema_of(model, NAMES), SimpleNamespace(embedding_multiplier=12.0))
    assert isinstance(found, list)
    assert [problem.where for problem in found] == ["embed"]


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"prompt_tokens": 4}, "expected a prompt of 3 tokens, got 4"),
        ({"cached_tokens": 2}, "expected no cached prefix, got 2"),
        ({"hidden_states": [[[0.0] * 8] * 2]}, r"expected 3 rows of 2 x 4, got \[2, 8\]"),
        ({"hidden_states": [[[0.0] * 4] * 3]}, r"expected 3 rows of 2 x 4, got \[3, 4\]"),
        ({"hidden_states": None}, "expected 3 rows of 2 x 4, got none"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(meta: dict[str, Any], message: str) -> None:
    whole = {"prompt_tokens": 3, "cached_tokens": 0, "hidden_states": [[[0.0] * 8] * 2, [[0.0] * 8]]}
    assert states_of(whole, 3, 2, 4).shape == (3, 2, 4)
    with pytest.raises(EngineError, match=message):
        states_of({**whole, **meta}, 3, 2, 4)
