"""The files of a real vLLM's connector, which speculators trains on: every slot is named, by its margin.

What vLLM asks for by id i is boundary i; its last id is the state before the final norm.
"""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from datagen.engines.settings import EngineSettings
from datagen.replay.identify import dtype_of_files, identify
from datagen.replay.identify_sources import ModelSource
from deploy.demo.model import MODEL
from tests.oracle import vllm_cpu

TEXTS = (
    "The lighthouse keeper counted eleven ships before the fog came in, and wrote each name into his book.",
    "Speculative decoding lets a small draft propose several tokens that the target then checks in one pass.",
)


def test_the_slots_of_vllms_own_files(tmp_path: Path) -> None:
    if not MODEL.is_dir():
        pytest.fail(f"{MODEL.name} is not there: run make assets")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    prompts = [list(tokenizer(text).input_ids) for text in TEXTS]
    vllm_cpu.extract(MODEL, [0, 2, 15, 27, 30], prompts, tmp_path)
    files = [file for file in tmp_path.rglob("*.safetensors") if file.name != "answer.safetensors"]
    assert len(files) == len(prompts)
    assert dtype_of_files(files) == "float32"
    settings = EngineSettings.model_validate({"model": str(MODEL), "dtype": "float32", "device": "cpu"})
    found = identify(files, ModelSource.of(settings))
    assert not found.errors
    names = [slot.found and slot.found.name for slot in found.slots]
    assert names == ["embed", "layer2", "layer15", "layer27", "final"] * len(prompts)
    for slot in found.slots:
        assert slot.layout == "speculators"
        assert slot.found is not None
        assert slot.found.p99 <= 1e-4
        assert slot.found.rival_median is not None
        assert slot.found.rival_median >= 0.1
