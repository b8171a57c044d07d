"""The norm that is kept of each family, against `final_normed` as the whole model makes it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm

from datagen.engines import final_norm
from datagen.engines.end_modules import find_ends
from datagen.engines.errors import OpeningError
from datagen.engines.final_norm import final_norm_of, model_final_norm
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from datagen.store.final_norm import apply_norm
from schemas.schema import Schema
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import CAUSAL, IMAGE_TEXT

RECIPES = {
    "gemma3": ("rms_norm", 1.0, "after_scale"),
    "gpt2": ("layer_norm", 0.0, "after_scale"),
    "gpt_neox": ("layer_norm", 0.0, "after_scale"),
    "opt": ("layer_norm", 0.0, "after_scale"),
}
LLAMAS = ("rms_norm", 0.0, "before_scale")


@pytest.mark.parametrize("family", [*CAUSAL, *IMAGE_TEXT])
def test_it_makes_final_normed_as_the_whole_model_does(
    family: str, tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    folder = with_random_norm(tiny_folder(family), tmp_path / "model")
    settings = EngineSettings(model=str(folder), dtype="bfloat16", device="cpu")
    target = read_target(settings)
    engine = open_engine(settings, Schema.declare(target, ("final", "final_normed"), "bfloat16"))
    (capture,) = engine.submit([list(range(40))]).result()
    engine.close()
    norm = model_final_norm(str(folder))
    assert (norm.kind, norm.offset, norm.casts) == RECIPES.get(family, LLAMAS)
    assert norm.problems(target) == []
    assert norm.weights == target.weights
    made = apply_norm(norm, capture.tensors["final"], "bfloat16").astype(np.float32)
    expected = capture.tensors["final_normed"].astype(np.float32)
    assert (made == expected).mean() >= 0.999
    assert (np.abs(made - expected) <= 2.0**-7 * np.maximum(np.abs(expected), 0.5)).all()


def with_random_norm(folder: Path, copy: Path) -> Path:
    """Copy a model, its norms' weights moved from their first values, so that `w` and `1 + w` differ."""
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for name, one in weights.items():
        if one.ndim == 1:
            weights[name] = one + 0.3 * torch.randn(one.shape, generator=generator).to(one.dtype)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def test_where_rounding_ends_is_seen(
    tiny_folder: TinyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arithmetics that differ in the last place of a few values: by the order of a cast and a product."""
    folder = with_random_norm(tiny_folder("llama"), tmp_path / "model")
    assert model_final_norm(str(folder)).casts == "before_scale"
    norm = GptOssRMSNorm(48)
    monkeypatch.setattr(final_norm, "find_ends", lambda config: find_ends(config)._replace(norm=norm))
    assert model_final_norm(str(folder)).casts == "after_scale"


class Softened(nn.Module):
    """No arithmetic that is known."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-5

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.weight * torch.tanh(rows)


def test_a_norm_of_another_arithmetic_is_not_kept(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(final_norm, "find_ends", lambda config: find_ends(config)._replace(norm=Softened(48)))
    with pytest.raises(OpeningError, match="expected a norm whose arithmetic is known, got Softened"):
        model_final_norm(str(tiny_folder("llama")))


class Conditioned(nn.LayerNorm):
    """A norm that needs more than rows."""

    def forward(self, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(rows) * scale


def test_a_norm_of_more_than_rows_is_told(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    norm = Conditioned(48, bias=False)
    monkeypatch.setattr(final_norm, "find_ends", lambda config: find_ends(config)._replace(norm=norm))
    with pytest.raises(OpeningError, match="expected a norm of rows alone, got Conditioned"):
        model_final_norm(str(tiny_folder("llama")))


def test_an_engine_without_files_has_none() -> None:
    with pytest.raises(OpeningError, match="got the engine synthetic, which has none"):
        final_norm_of(EngineSettings(name="synthetic"))
