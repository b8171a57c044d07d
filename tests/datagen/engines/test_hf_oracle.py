"""The hf engine against transformers' own `output_hidden_states`, a family of architectures at a time.

Index i is boundary i for i < L; index L is `final_normed`; `final` has no index and is taken by a hook of the
test's own on the last layer.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from datagen.engines.base import Capture, Engine
from datagen.engines.layers import find_decoder
from datagen.engines.loading import TORCH_DTYPES
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from schemas.boundary import all_names
from schemas.schema import DType, Schema
from tests.contract.engine_contract import token_errors
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import CAUSAL, VOCAB

LENGTHS = (9, 1, 23, 16, 2)
DTYPE_CASES: tuple[DType, ...] = ("float32", "bfloat16")


def every_boundary(folder: Path, dtype: DType, **settings: Any) -> Engine:
    choice = EngineSettings(model=str(folder), dtype=dtype, device="cpu", **settings)
    target = read_target(choice)
    return open_engine(choice, Schema.declare(target, all_names(target.n_layers), dtype))


def ragged(seed: int = 3) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, length).tolist() for length in LENGTHS]


def oracle(model: Any, batch: list[list[int]], *, masked: bool) -> dict[str, torch.Tensor]:
    """Return what transformers says, padded [B, S, H] a tensor, and the logits' argmax [B, S]."""
    longest = max(map(len, batch))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
    last: list[torch.Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        last.append((output[0] if isinstance(output, tuple) else output).clone())

    handle = find_decoder(model).layers[-1].register_forward_hook(keep)
    with torch.inference_mode():
        output = model(
            input_ids=ids,
            attention_mask=mask if masked else None,
            output_hidden_states=True,
            use_cache=False,
        )
    handle.remove()
    n_layers = len(output.hidden_states) - 1
    names = all_names(n_layers)
    said = {names[index]: output.hidden_states[index] for index in range(n_layers)}
    said["final"] = last[0]
    said["final_normed"] = output.hidden_states[n_layers]
    said["argmax"] = output.logits.argmax(-1)
    return said


def rows_of(tensor: torch.Tensor, index: int, length: int) -> NDArray[np.float32]:
    return tensor[index, :length].float().numpy()


def loaded(folder: Path, dtype: DType) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=TORCH_DTYPES[dtype]).eval()


@pytest.mark.parametrize("dtype", DTYPE_CASES)
@pytest.mark.parametrize("family", CAUSAL)
def test_equal_bit_for_bit_in_the_same_batch(family: str, dtype: DType, tiny_folder: TinyFolder) -> None:
    folder = tiny_folder(family)
    batch = ragged()
    captures = every_boundary(folder, dtype).submit(batch, with_argmax=True).result()
    said = oracle(loaded(folder, dtype), batch, masked=False)
    for index, (ids, capture) in enumerate(zip(batch, captures, strict=True)):
        for name, rows in capture.tensors.items():
            np.testing.assert_array_equal(
                rows.astype(np.float32), rows_of(said[name], index, len(ids)), err_msg=name
            )
    assert agreement(captures, said) >= (1.0 if dtype == "float32" else 0.98)


def agreement(captures: Any, said: dict[str, torch.Tensor]) -> float:
    equal = [
        capture.argmax == said["argmax"][index, : len(capture.argmax)].numpy()
        for index, capture in enumerate(captures)
    ]
    return float(np.concatenate(equal).mean())


@pytest.mark.parametrize("dtype", DTYPE_CASES)
@pytest.mark.parametrize("family", CAUSAL)
def test_alone_as_in_a_batch(family: str, dtype: DType, tiny_folder: TinyFolder) -> None:
    """By token: median at most 0.5%, p99 at most 2%; a few rows may go to other experts."""
    engine = every_boundary(tiny_folder(family), dtype)
    batch = ragged() + ragged(seed=4)
    together = engine.submit(batch).result()
    alone = [engine.submit([ids]).result()[0] for ids in batch]
    for name in engine.schema.names:
        errors = all_errors(together, alone, name)
        outliers = int((errors > 0.02).sum())
        assert np.median(errors) <= 0.005, name
        assert outliers <= 0.01 * len(errors) + (2 if "moe" in family or "deepseek" in family else 0), name


def all_errors(left: Any, right: Any, name: str) -> NDArray[np.float32]:
    pairs = zip(left, right, strict=True)
    return np.concatenate([token_errors(one.tensors[name], other.tensors[name]) for one, other in pairs])


@pytest.mark.parametrize("family", CAUSAL)
def test_as_transformers_with_its_attention_mask(family: str, tiny_folder: TinyFolder) -> None:
    """The engine gives no mask, since padding stands to the right; with one transformers says the same."""
    folder = tiny_folder(family)
    batch = ragged()
    said = oracle(loaded(folder, "float32"), batch, masked=True)
    for index, capture in enumerate(every_boundary(folder, "float32").submit(batch).result()):
        for name, rows in capture.tensors.items():
            errors = token_errors(rows, rows_of(said[name], index, len(batch[index])))
            assert errors.max() <= 1e-4, name


@pytest.mark.parametrize("family", CAUSAL)
def test_padding_does_not_leak(family: str, tiny_folder: TinyFolder) -> None:
    """One shape of batch, another neighbour: a short sample keeps its states."""
    engine = every_boundary(tiny_folder(family), "float32")
    short = [5, 6, 7, 8]
    one, other = (engine.submit([short, [token] * 30]).result()[0] for token in (0, VOCAB - 1))
    for name in engine.schema.names:
        assert token_errors(one.tensors[name], other.tensors[name]).max() <= 1e-5, name


def test_eager_attention_says_the_same(tiny_folder: TinyFolder) -> None:
    folder = tiny_folder("llama")
    eager = every_boundary(folder, "float32", attn_implementation="eager")
    assert eager.info.extra["attn_implementation"] == "eager"
    for one, other in pairs(eager, every_boundary(folder, "float32"), ragged()):
        for name in eager.schema.names:
            assert token_errors(one.tensors[name], other.tensors[name]).max() <= 1e-4


def test_a_device_map_says_the_same(tiny_folder: TinyFolder) -> None:
    folder = tiny_folder("llama")
    choice = EngineSettings(model=str(folder), dtype="float32", device_map="cpu")
    schema = every_boundary(folder, "float32").schema
    for one, other in pairs(open_engine(choice, schema), every_boundary(folder, "float32"), ragged()):
        for name in schema.names:
            assert one.tensors[name].tobytes() == other.tensors[name].tobytes()


def pairs(left: Engine, right: Engine, batch: list[list[int]]) -> list[tuple[Capture, Capture]]:
    return list(zip(left.submit(batch).result(), right.submit(batch).result(), strict=True))


def test_nothing_of_the_engine_stays_on_the_model(tiny_folder: TinyFolder) -> None:
    engine: Any = every_boundary(tiny_folder("llama"), "float32")
    layers = engine._loaded.anatomy.decoder.layers
    before = [len(layer._forward_hooks) for layer in layers]
    engine.submit(ragged()).result()
    assert [len(layer._forward_hooks) for layer in layers] == before
    assert [len(layer._forward_pre_hooks) for layer in layers] == [0] * len(layers)
