"""The ends of a model read from its files alone, against those of the whole model, on many families."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from datagen.engines.architecture import read_config
from datagen.engines.errors import OpeningError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.target_head import TargetHead
from schemas.schema import DType, Schema
from tests.contract.engine_contract import token_errors
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.state_server import tensor_of
from tests.datagen.engines.tiny_models import CAUSAL, IMAGE_TEXT

MORE_THAN_A_TABLE = {"gemma3", "gpt2", "opt"}
"""Scaled rows, or positions added to them."""


def head_of(folder: Path, dtype: DType) -> TargetHead:
    return TargetHead(folder, read_config(folder, trust_remote_code=False), dtype)


@pytest.mark.parametrize("family", [*CAUSAL, *IMAGE_TEXT])
def test_they_are_those_of_the_whole_model(family: str, tiny_folder: TinyFolder) -> None:
    folder = tiny_folder(family)
    settings = EngineSettings(model=str(folder), dtype="float32", device="cpu")
    names = ("embed", "final", "final_normed")
    engine = open_engine(settings, Schema.declare(read_target(settings), names, "float32"))
    ids = [3, 199, 7, 7, 50, 0, 121]
    (capture,) = engine.submit([ids], with_argmax=True).result()
    head = head_of(folder, "float32")
    final = tensor_of(capture.tensors["final"])
    normed = head.norm(final).numpy()
    assert token_errors(normed, capture.tensors["final_normed"]).max() < 1e-5
    assert head.choose(final).tolist() == engine.head_argmax(capture.tensors["final"]).tolist()
    same = np.array_equal(head.embed(ids).numpy(), capture.tensors["embed"])
    if family in MORE_THAN_A_TABLE:
        assert not same
        assert head.embedding_problem is not None
        assert "expected a plain embedding table" in head.embedding_problem.message
    else:
        assert head.embedding_problem is None
        assert same
    engine.close()


def test_weights_that_are_not_there_are_told_by_name(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    weights["other.embed_tokens.weight"] = torch.zeros(2, 2)
    weights["another.lm_head.weight"] = torch.zeros(2, 2)
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(OpeningError) as caught:
        head_of(folder, "float32")
    assert [problem.where for problem in caught.value.problems] == ["model.norm.weight"]
