"""Every boundary that vLLM hands out against transformers on the same ids, by token, and its nearest rival.

transformers is asked by itself (`tests.datagen.engines.test_hf_oracle`), not through the engine hf.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import AutoTokenizer

from datagen.engines.base import Capture
from datagen.engines.opening import boundary_problems
from deploy.demo.model import MODEL
from schemas.boundary import all_names
from schemas.schema import DType, Schema
from tests.contract.engine_contract import token_errors
from tests.datagen.engines.test_hf_oracle import loaded, oracle, rows_of
from tests.datagen.engines.tiny_models import VOCAB
from tests.with_vllm import small_models
from tests.with_vllm.opened import start

TEXTS = (
    "The lighthouse keeper counted eleven ships before the fog came in, and wrote each name into his book.",
    "def mean(xs):\n    return sum(xs) / len(xs)\n\nprint(mean([1, 2, 3]))  # 2.0",
    "Speculative decoding lets a small draft propose several tokens that the target then checks in one pass.",
    "A",
    "Hidden states are the residual stream of a language model, one vector a token and a layer. " * 9,
)
MEDIAN, P99 = 0.005, 0.02
FLOAT32 = 1e-4
FAR = 0.2
ROUTED = ("qwen3_moe", "deepseek_v3")
"""A token whose router is undecided goes to other experts for a rounding: few may, and are counted."""


class Compared(NamedTuple):
    """One tensor's errors a token [R], and the median error against its nearest wrong neighbour."""

    name: str
    errors: NDArray[np.float32]
    rival: str
    rival_median: float


def compared(captures: Sequence[Capture], said: Any, lengths: Sequence[int]) -> list[Compared]:
    """Compare each captured tensor with each of transformers'."""
    names = tuple(captures[0].tensors)
    made = []
    for name in names:
        against = {
            other: np.concatenate(
                [
                    token_errors(capture.tensors[name], rows_of(said[other], index, length))
                    for index, (capture, length) in enumerate(zip(captures, lengths, strict=True))
                ]
            )
            for other in names
        }
        medians = {other: float(np.median(errors)) for other, errors in against.items() if other != name}
        rival = min(medians, key=lambda other: medians[other])
        made.append(Compared(name, against[name], rival, medians[rival]))
    return made


def folder_of(model: str, root: Path) -> Path:
    return MODEL if model == "smollm2" else small_models.save(model, root / model)


def batch_of(model: str) -> list[list[int]]:
    if model == "smollm2":
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        return [list(tokenizer(text).input_ids) for text in TEXTS]
    rng = np.random.default_rng(3)
    return [rng.integers(0, VOCAB, length).tolist() for length in (9, 1, 23, 64, 2, 40)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["smollm2", "llama", *ROUTED])
def test_every_boundary_is_transformers_own(
    model: str, dtype: DType, tmp_path: Path, figures: list[str]
) -> None:
    folder, batch = folder_of(model, tmp_path), batch_of(model)
    # 64 tokens a forward: the long samples go through in pieces.
    engine = start(folder, dtype, ("layer1", "layer2", "layer3", "final"), max_num_batched_tokens=64)
    target = engine.target
    audit = engine.handing_out(Schema.declare(target, all_names(target.n_layers), dtype))
    captures = audit.submit(batch, with_argmax=True).result()
    chosen = [engine.head_argmax(capture.tensors["final"]) for capture in captures]
    engine.close()
    said = oracle(loaded(folder, dtype), batch, masked=False)
    tensors = compared(captures, said, [len(ids) for ids in batch])
    n_tokens = sum(map(len, batch))
    outliers = sum(int((one.errors > P99).sum()) for one in tensors)
    worst = max(tensors, key=lambda one: float(np.quantile(one.errors, 0.99)))
    nearest = min(tensors, key=lambda one: one.rival_median)
    figures.append(
        f"{model} {dtype}, {len(tensors)} tensors of {n_tokens} tokens: worst median "
        f"{max(np.median(one.errors) for one in tensors):.2e}, worst p99 "
        f"{np.quantile(worst.errors, 0.99):.2e} ({worst.name}), {outliers} rows above {P99:.0%}; nearest wrong "
        f"boundary {nearest.rival_median:.1%} ({nearest.rival} for {nearest.name})"
    )
    for one in tensors:
        own = float(np.median(one.errors))
        assert own <= (FLOAT32 if dtype == "float32" else MEDIAN), one.name
        assert one.rival_median >= min(FAR, 20 * P99) or one.rival_median >= 20 * own, one.name
        if dtype == "float32":
            assert one.errors.max() <= FLOAT32, one.name
        elif model in ROUTED:
            assert (one.errors > P99).mean() <= 0.1, one.name
        else:
            assert np.quantile(one.errors, 0.99) <= P99 * (1.5 if one.name.startswith("final") else 1), (
                one.name
            )
    _compare_choices(captures, chosen, said, dtype)


def _compare_choices(
    captures: Sequence[Capture], chosen: Sequence[NDArray[np.int32]], said: Any, dtype: DType
) -> None:
    own = np.concatenate([capture.argmax for capture in captures if capture.argmax is not None])
    theirs = np.concatenate([said["argmax"][index, : len(one)].numpy() for index, one in enumerate(chosen)])
    heads = np.concatenate(chosen)
    assert (heads == own).mean() >= 0.98
    assert (own == theirs).mean() >= (1.0 if dtype == "float32" else 0.9)


def test_embed_of_latent_attention_is_the_embedding_bit_for_bit(tmp_path: Path) -> None:
    """vLLM gives no id 0 there: the tensor is the embedding layer's, and says so."""
    folder, batch = folder_of("deepseek_v3", tmp_path), batch_of("deepseek_v3")
    engine = start(folder, "bfloat16", ("embed", "layer2", "final"))
    assert boundary_problems(engine.settings, engine.schema) == []
    assert "beside" in engine.info.extra["embed"]
    said = oracle(loaded(folder, "bfloat16"), batch, masked=False)
    for index, capture in enumerate(engine.submit(batch).result()):
        expected = rows_of(said["embed"], index, len(batch[index]))
        np.testing.assert_array_equal(capture.tensors["embed"].astype(np.float32), expected)
    engine.close()
