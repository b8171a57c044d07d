"""Causal models that transformers holds inside image-text-to-text ones: their language model is captured."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from schemas.boundary import all_names
from schemas.schema import Schema
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import IMAGE_TEXT, build

BATCH = [[3, 4, 5, 6, 7], [8], [9, 10, 11]]


@pytest.mark.parametrize("family", IMAGE_TEXT)
def test_the_language_model_is_captured(family: str, tiny_folder: TinyFolder) -> None:
    folder = tiny_folder(family)
    settings = EngineSettings(model=str(folder), dtype="float32", device="cpu")
    target = read_target(settings)
    assert (target.n_layers, target.hidden_size, target.model_type) == (3, 48, family)
    engine = open_engine(settings, Schema.declare(target, all_names(3), "float32"))
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    for ids, capture in zip(BATCH, engine.submit(BATCH, with_argmax=True).result(), strict=True):
        with torch.inference_mode():
            said: Any = model(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False)
        for index, name in enumerate(("embed", "layer1", "layer2", "final_normed")):
            expected = said.hidden_states[index][0].numpy()
            np.testing.assert_allclose(
                capture.tensors[name].astype(np.float32), expected, rtol=1e-4, atol=1e-5
            )
        assert capture.argmax is not None
        assert capture.argmax.tolist() == said.logits[0].argmax(-1).tolist()


def test_kimi_has_no_causal_class_in_transformers() -> None:
    """When this fails, transformers has learnt it and the other door is no longer needed for it."""
    assert type(build("kimi_k25").config) not in AutoModelForCausalLM._model_mapping
