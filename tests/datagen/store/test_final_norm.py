"""The numpy norm against the models' own classes, and the same bytes whatever is asked for at once."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from datagen.store.dtypes import NUMPY_DTYPES
from datagen.store.final_norm import apply_norm
from schemas.final_norm import FinalNorm, NormRecipe
from schemas.schema import DType
from tests.builders import random_rows, tiny_norm

EPS = 1e-5
CLASSES: dict[str, tuple[Any, NormRecipe]] = {
    "llama": (LlamaRMSNorm, NormRecipe("rms_norm", EPS, 0.0, "before_scale")),
    "qwen3": (Qwen3RMSNorm, NormRecipe("rms_norm", EPS, 0.0, "before_scale")),
    "gpt_oss": (GptOssRMSNorm, NormRecipe("rms_norm", EPS, 0.0, "after_scale")),
    "gemma": (GemmaRMSNorm, NormRecipe("rms_norm", EPS, 1.0, "after_scale")),
    "gemma3": (Gemma3RMSNorm, NormRecipe("rms_norm", EPS, 1.0, "after_scale")),
    "cohere": (CohereLayerNorm, NormRecipe("layer_norm", EPS, 0.0, "after_scale")),
    "gpt2": (nn.LayerNorm, NormRecipe("layer_norm", EPS, 0.0, "after_scale")),
}
TORCH: dict[DType, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
EXACT: dict[DType, float] = {"bfloat16": 0.9995, "float16": 0.998, "float32": 0.0}
"""The least share of values that are equal to the last bit: torch sums in another order."""
UNIT: dict[DType, float] = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-18}


def raw(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", list(TORCH))
@pytest.mark.parametrize("name", list(CLASSES))
def test_it_is_what_the_models_class_makes(name: str, dtype: DType) -> None:
    make, recipe = CLASSES[name]
    width, n_rows = 576, 300
    generator = torch.Generator().manual_seed(7)
    module = make(width, eps=EPS).to(TORCH[dtype])
    for parameter in module.parameters():
        parameter.data = (torch.randn(width, generator=generator) * 0.3 + 1).to(TORCH[dtype])
    # From rows where epsilon counts to rows as large as a sink's.
    rows = torch.randn(n_rows, width, generator=generator) * torch.logspace(-3, 3, n_rows)[:, None]
    rows = rows.to(TORCH[dtype])
    with torch.inference_mode():
        expected = module(rows).float().numpy()
    bias = getattr(module, "bias", None)
    norm = FinalNorm.of(
        recipe, dtype, raw(module.weight), None if bias is None else raw(bias), tiny_norm().weights
    )
    given_rows = np.frombuffer(raw(rows), NUMPY_DTYPES[dtype]).reshape(n_rows, width)
    made = apply_norm(norm, given_rows, dtype)
    assert made.dtype == given_rows.dtype
    got = made.astype(np.float32)
    assert (got == expected).mean() >= EXACT[dtype]
    assert (np.abs(got - expected) <= UNIT[dtype] * np.maximum(np.abs(expected), 0.5)).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from(list(TORCH)), st.integers(0, 3))
def test_a_row_hangs_on_no_other(first: int, end: int, dtype: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    norm = tiny_norm(hidden_size=1024, seed=seed, bias=bool(seed % 2))
    rows = random_rows(300, 1024, dtype, rng)
    whole = apply_norm(norm, rows, dtype)
    first, end = min(first, end), max(first, end)
    assert_equal(apply_norm(norm, rows[first:end], dtype), whole[first:end])


def test_bits_of_bfloat16_are_normed_as_the_values() -> None:
    norm = tiny_norm(hidden_size=64)
    rows = random_rows(10, 64, "bfloat16", np.random.default_rng(0))
    made = apply_norm(norm, rows.view(np.uint16), "bfloat16")
    assert made.dtype == np.uint16
    assert_equal(made, apply_norm(norm, rows, "bfloat16"))


def test_it_is_made_in_place_and_into_slots_of_a_stack() -> None:
    norm = tiny_norm(hidden_size=64)
    rows = random_rows(3000, 64, "bfloat16", np.random.default_rng(0))
    expected = apply_norm(norm, rows, "bfloat16")
    stack = np.zeros((3000, 3, 64), rows.dtype)
    stack[:, 1] = rows
    apply_norm(norm, stack[:, 1], "bfloat16", out=stack[:, 2])
    assert_equal(np.ascontiguousarray(stack[:, 2]), expected)
    assert_equal(np.ascontiguousarray(stack[:, 1]), rows)
    assert apply_norm(norm, rows, "bfloat16", out=rows) is rows
    assert_equal(rows, expected)
    with pytest.raises(ValueError, match="expected out as"):
        apply_norm(norm, rows, "bfloat16", out=rows[:10])


def test_the_weight_is_cast_to_the_rows_dtype_as_a_loaded_model_has_it() -> None:
    weight = np.full(8, 1 + 2.0**-12, np.float32)  # 1.0 in bfloat16
    norm = FinalNorm.of(
        NormRecipe("rms_norm", 0.0, 0.0, "before_scale"),
        "float32",
        weight.tobytes(),
        None,
        tiny_norm().weights,
    )
    ones = np.ones((1, 8), np.float32)
    assert (apply_norm(norm, ones, "float32") == weight).all()
    assert (apply_norm(norm, ones.astype(NUMPY_DTYPES["bfloat16"]), "bfloat16") == 1).all()


def test_what_is_not_finite_stays_so() -> None:
    norm = tiny_norm(hidden_size=8)
    rows = np.ones((3, 8), NUMPY_DTYPES["bfloat16"])
    rows[1, 0], rows[2, 0] = np.nan, -np.inf
    made = apply_norm(norm, rows, "bfloat16").astype(np.float32)
    assert np.isfinite(made[0]).all()
    assert np.isnan(made[1]).all()
    assert np.isnan(made[2, 0])


@pytest.mark.parametrize("shape", [(8,), (2, 9)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected rows \[T, 8\] of float32"):
        apply_norm(tiny_norm(), np.zeros(shape, np.float32), "float32")


def assert_equal(got: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()
