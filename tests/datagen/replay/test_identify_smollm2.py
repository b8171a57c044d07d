"""Files that transformers itself made of the real SmolLM2: every boundary one by one, in both dtypes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from datagen.engines.settings import EngineSettings
from datagen.replay.identify import identify
from datagen.replay.identify_sources import ModelSource
from schemas.boundary import all_names

MODEL = Path("data/models/smollm2-135m-instruct")
TEXTS = (
    "Speculative decoding lets a small draft propose several tokens that the target then checks in one pass.",
    "def mean(xs):\n    return sum(xs) / len(xs)\n\nprint(mean([1, 2, 3]))  # 2.0",
)
L = 30


@pytest.fixture(scope="module")
def folder() -> Path:
    if not (MODEL / "model.safetensors").is_file():
        pytest.fail(f"{MODEL} is not there: run `make assets`")
    return MODEL


def states(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """Return transformers' states `[T, H]`, the last one twice: as the last layer wrote it, and normed."""
    written: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        written.append(output[0] if isinstance(output, tuple) else output)

    hook = model.model.layers[-1].register_forward_hook(keep)
    with torch.inference_mode():
        *before, normed = model(ids, output_hidden_states=True).hidden_states
    hook.remove()
    last = written[0].reshape(normed.shape)
    return [state[0].clone() for state in (*before, last, normed)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_all_boundaries_one_by_one(dtype: str, folder: Path, tmp_path: Path) -> None:
    """As a list of all, and stacked as by the ids of vLLM; a third of one slot is foreign."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    first, second = (tokenizer(text, return_tensors="pt").input_ids for text in TEXTS)
    mine, other = states(model, first), states(model, second)
    del model
    torch.save({"input_ids": first[0], "hidden_states": mine}, tmp_path / "data_0.pt")
    stack = torch.stack([other[b] for b in (2, 15, 27, L)], dim=1)
    stack[3:10, 1] = mine[15][5:12]
    save_file({"hidden_states": stack, "token_ids": second[0]}, tmp_path / "hs_1.safetensors")
    settings = EngineSettings.model_validate({"model": str(folder), "dtype": dtype, "device": "cpu"})
    source = ModelSource.of(settings)
    found = identify([tmp_path / "data_0.pt", tmp_path / "hs_1.safetensors"], source)
    source.engine.close()
    names = [slot.found and slot.found.name for slot in found.slots]
    assert names == [*all_names(L), "layer2", "layer15", "layer27", "final"]
    for slot in found.slots:
        assert slot.found is not None
        assert slot.found.median <= 0.005
        assert slot.found.rival_median is not None
        assert slot.found.rival_median >= 0.1
    (problem,) = found.errors
    assert problem.where.endswith("hs_1.safetensors: hidden_states[1]")
    assert "rows 3 to 9: expected the states of this file's tokens, got those of" in problem.message
    assert problem.message.endswith("data_0.pt, rows 5 to 11 of it")
